import { html, useState, useGet, useLive, send, say, Page, Panel, Button, Badge, ErrorLine, Empty } from "../kit.js";

const STATES = { running: "ok", failed: "bad", lost: "bad", waiting: "warn", stopped: "idle" };

export default function Pipelines() {
  const { data, error, reload } = useGet("pipelines");
  const [failed, setFailed] = useState(null);
  useLive("overview", reload);
  const stop = (name) => send("POST", `pipelines/${encodeURIComponent(name)}/stop`, {}).then(() => { say(`${name} is asked to stop`); setFailed(null); reload(); }, setFailed);
  return html`<${Page} title="Pipelines"><${ErrorLine} error=${error ?? failed} />
    ${data && !data.rows.length ? html`<section aria-label="Pipelines"><${Empty}>No pipeline reports to this node.<//></section>` : null}
    ${(data?.rows ?? []).map((row) => html`<${Panel} key=${row.name} title=${`${row.kind} ${row.name}`}><p><${Badge} state=${STATES[row.state]}>${row.state}<//> <${Button} danger level="operate" onClick=${() => stop(row.name)}>Stop<//></p>
      ${row.queries.length ? html`<div class="scroll" tabindex="0" role="region" aria-label=${`Queries of ${row.name}`}><table><thead><tr><th>Query</th><th>State</th><th>Progress</th><th class="number">Restarts</th><th>Last error</th></tr></thead><tbody>${row.queries.map((each) => html`<tr key=${each.name}><td>${each.name}</td><td><${Badge} state=${STATES[each.state]}>${each.state}<//></td><td>${each.progress}</td><td class="number">${each.restarts}</td><td class="text">${each.error}</td></tr>`)}</tbody></table></div>` : row.more ? html`<pre tabindex="0">${JSON.stringify(row.more, null, 2)}</pre>` : null}<//>`)}<//>`;
}
