import { html, useGet, useLive, useQuery, Page, Panel, Field, Badge, ErrorLine } from "../kit.js";

export default function Health({ query }) {
  const [, setQuery] = useQuery();
  const { data, error } = useGet("config");
  const overview = useLive("overview").data;
  const wanted = (query.filter ?? "").toLowerCase();
  const rows = (data?.rows ?? []).filter((row) => row.name.includes(wanted) && (query.set !== "1" || row.from !== "default"));
  return html`<${Page} title="Health" actions=${html`<a href="/console/api/bundle" download>Support bundle</a>`}><${ErrorLine} error=${error} />
    ${overview ? html`<${Panel} title="State"><ul><li>${overview.troubles.length ? html`<${Badge} state="bad">not well<//> ${overview.troubles.join("; ")}` : html`<${Badge} state="ok">well<//> it takes messages`}</li><li>${overview.gaps} damaged places were skipped by reads</li><li>${overview.node.read_only ?? 0} topics are read only</li><li>version ${overview.version}</li></ul><//>` : null}
    <${Panel} title="Options"><div class="fields"><${Field} label="Filter"><input type="search" value=${query.filter ?? ""} onInput=${(event) => setQuery({ filter: event.target.value })} /><//><label><span><input type="checkbox" checked=${query.set === "1"} onChange=${(event) => setQuery({ set: event.target.checked ? "1" : undefined })} /> only what was set</span></label></div>
      <div class="scroll" tabindex="0" role="region" aria-label="Options"><table><thead><tr><th>Option</th><th>Value</th><th>From</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.name}><td>${row.name}</td><td class="text code">${row.value === null ? "none" : JSON.stringify(row.value)}</td><td>${row.from}</td></tr>`)}</tbody></table></div><//><//>`;
}
