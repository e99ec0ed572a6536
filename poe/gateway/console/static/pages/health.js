import { html, useGet, useLive, useQuery, Page, Panel, Field, Badge, Link, ErrorLine, Empty, When, bytesText, durationText } from "../kit.js";

function scrubbed(scrub) {
  if (!scrub) return "not told";
  const round = scrub.ended_us ? html`, last round ended <${When} us=${scrub.ended_us} />` : ", the first round is not ended";
  return html`${scrub.damaged ? html`<${Badge} state="bad">${scrub.damaged} damaged segments<//> ` : ""}${scrub.compared} closed segments compared${scrub.left ? `, ${scrub.left} to go` : ""}${round}`;
}

export default function Health({ query }) {
  const [, setQuery] = useQuery();
  const { data, error } = useGet("config");
  const deeds = useGet("deeds");
  const overview = useLive("overview", deeds.reload).data;
  const wanted = (query.filter ?? "").toLowerCase();
  const rows = (data?.rows ?? []).filter((row) => row.name.includes(wanted) && (query.set !== "1" || row.from !== "default"));
  return html`<${Page} title="Health" actions=${html`<a href="/console/api/bundle" download>Support bundle</a>`}><${ErrorLine} error=${error} />
    ${overview ? html`<${Panel} title="State"><ul><li>${overview.troubles.length ? html`<${Badge} state="bad">not well<//> ${overview.troubles.map((each) => html`${each.text} `)}` : html`<${Badge} state="ok">well<//> it takes messages`}</li><li>${overview.gaps} damaged places were skipped by reads</li><li>${overview.node.read_only ?? 0} topics are read only</li><li>disk: ${overview.disk.free === null ? "its room is not asked" : `${bytesText(overview.disk.free)} free, of which ${bytesText(overview.disk.min_free ?? 0)} stay free${overview.disk.full_s === null ? "" : `; full in ${durationText(overview.disk.full_s)} at this rate`}`}</li>
      <li>scrubber: ${scrubbed(overview.node.scrub)}</li><li>version ${overview.version}</li></ul><p><${Link} page="events">What has happened in the node<//></p><//>` : null}
    <${Panel} title="Options"><div class="fields"><${Field} label="Filter"><input type="search" value=${query.filter ?? ""} onInput=${(event) => setQuery({ filter: event.target.value })} /><//><label><span><input type="checkbox" checked=${query.set === "1"} onChange=${(event) => setQuery({ set: event.target.checked ? "1" : undefined })} /> only what was set</span></label></div>
      <div class="scroll" tabindex="0" role="region" aria-label="Options"><table><thead><tr><th>Option</th><th>Value</th><th>From</th></tr></thead><tbody>${rows.map((row) => html`<tr key=${row.name}><td>${row.name}</td><td class="text code">${row.value === null ? "none" : JSON.stringify(row.value)}</td><td>${row.from}</td></tr>`)}</tbody></table></div><//>
    <${Panel} title="What was done with this console">${deeds.data?.rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="What was done"><table><thead><tr><th>When</th><th>Who</th><th>From</th><th>What</th></tr></thead><tbody>${deeds.data.rows.slice(0, 100).map((row) => html`<tr><td><${When} us=${row.time_us} /></td><td>${row.user ?? "one-time token"}</td><td>${row.address}</td><td class="text">${row.action} ${row.target}</td></tr>`)}</tbody></table></div>` : deeds.data ? html`<${Empty}>Nothing.<//>` : html`<${ErrorLine} error=${deeds.error} />`}<//><//>`;
}
