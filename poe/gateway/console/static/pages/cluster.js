import { html, useState, useGet, useLive, send, say, Page, Panel, Button, Badge, Confirm, ErrorLine, Empty, Link, LONG_S, Num, Bytes, When } from "../kit.js";

const STATES = { me: "ok", live: "ok", slow: "warn", out: "warn", down: "bad", following: "ok" };
const Grid = ({ label, head, children }) => html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table><thead><tr>${head.map((each) => html`<th>${each}</th>`)}</tr></thead><tbody>${children}</tbody></table></div>`;
const some = (shown, total) => (total > shown ? html`<p class="quiet">${total}, of which ${shown} are shown.</p>` : null);

function Queues({ rows, total }) {
  if (!rows.length) return html`<${Empty}>No queue yet; the first put onto one makes it.<//>`;
  return html`<${Grid} label="Queues" head=${["Queue", "Messages here", "Bytes here", "Copies", "Puts under way", "Groups", ""]}>
    ${rows.map((row) => html`<tr key=${row.id}><td>${row.name}${row.persist ? " (persistent)" : ""}</td><td class="number"><${Num} n=${row.messages} /></td><td class="number"><${Bytes} n=${row.bytes} /></td><td class="number">${row.copies}</td><td class="number"><${Num} n=${row.puts_under_way} /></td><td class="text">${row.groups.join(", ")}</td><td>${row.has_missing_copies ? html`<${Badge} state="warn">copies are missing<//>` : null}</td></tr>`)}<//>${some(rows.length, total)}`;
}

function Log({ log, onFailed }) {
  const [found, setFound] = useState(null);
  const [isAtWork, setIsAtWork] = useState(false);
  if (!log.engine) return html`<p>${log.why || "The engine is not reached."}</p>`;
  const compare = () => { setIsAtWork(true); send("POST", "cluster/verify", {}, LONG_S).then((told) => { setFound(told); say("the copies are compared"); onFailed(null); }, onFailed).then(() => setIsAtWork(false)); };
  const verdict = (row) => (row.error ? html`<${Badge} state="warn">not compared<//> ${row.error}` : row.differing.length ? html`<${Badge} state="bad">different<//> in segments ${row.differing.join(", ")}` : html`<${Badge} state="ok">the same<//>${row.behind ? `, ${row.behind} entries behind` : ""}`);
  return html`<p>Engine ${log.engine}, led by ${log.leader || html`<${Badge} state="bad">nobody: there is no majority<//>`}${log.away.length ? html` <${Badge} state="warn">away: ${log.away.join(", ")}<//>` : ""} ${log.why}</p>
    <${Grid} label="Replicated topics" head=${["Partition", "Copy", "Place", "Puts that wait", "Why"]}>
      ${log.topics.map((row) => html`<tr key=${row.id}><td><${Link} page="topic" query=${{ topic: row.id }}>${row.name}<//></td><td><${Badge} state=${STATES[row.state] ?? "warn"}>${row.state}<//></td><td class="number">${row.place}</td><td class="number">${row.waiting}</td><td class="text">${row.why}</td></tr>`)}
      ${log.refused.map((row) => html`<tr key=${row.id}><td>${row.name}</td><td><${Badge} state="bad">refused<//></td><td></td><td></td><td class="text">${row.why}</td></tr>`)}<//>${some(log.topics.length, log.topics_total)}
    <p><${Button} level="operate" disabled=${isAtWork} onClick=${compare}>Compare copies<//></p>
    ${found ? html`<${Grid} label="Copies compared" head=${["Partition", "With", "Messages", ""]}>${found.rows.map((row) => html`<tr><td>${row.name}</td><td>${row.node}</td><td class="number"><${Num} n=${row.messages} /></td><td class="text">${verdict(row)}</td></tr>`)}<//>${some(found.rows.length, found.total)}` : null}`;
}

function Repeats({ at }) {
  const { data, error } = useGet("cluster/report", { at });
  if (!data) return html`<${ErrorLine} error=${error} />`;
  if (!data.rows.length) return html`<${Empty}>Nothing, as far as this node knows.<//>`;
  return html`<${Grid} label="What came twice" head=${["Queue", "Group", "Pointers", "How sure", "Why", "Nodes", "Since"]}>
    ${data.rows.map((row) => html`<tr><td>${row.name}</td><td>${row.group}</td><td>behind ${row.after} up to ${row.last}</td><td><${Badge} state=${row.certainty === "certain" ? "bad" : "warn"}>${row.certainty}<//></td><td>${row.cause}</td><td class="text">${row.nodes.join(" ")}</td><td><${When} us=${row.since_us} /></td></tr>`)}<//>${some(data.rows.length, data.total)}`;
}

export default function Cluster() {
  const { data, error, isStale } = useLive("cluster");
  const [failed, setFailed] = useState(null);
  const [asked, setAsked] = useState(null);
  if (!data) return html`<${Page} title="Cluster"><${ErrorLine} error=${error} />${error ? null : html`<p>Loading…</p>`}<//>`;
  if (!data.is_in_cluster) return html`<${Page} title="Cluster"><section><${Empty}>${data.is_told ? html`This node is in no cluster; start it with <code>--cluster NAME</code> to have one.` : "Only those who may administer this node are told of its cluster."}<//></section><//>`;
  return html`<${Page} title=${`Cluster ${data.cluster}`}><${ErrorLine} error=${error ?? failed} />
    <p>Seen from ${data.name}${data.zone ? `, zone ${data.zone}` : ""}: <${Badge} state=${data.live === data.nodes.filter((each) => each.state === "joined").length ? "ok" : "warn"}>${data.live} of ${data.nodes.length} nodes live<//> ${data.why}${isStale ? html` <${Badge} state="warn">not of now<//>` : ""}</p>
    <${Panel} title="Nodes"><${Grid} label="Nodes" head=${["Node", "Lives", "State", "Zone", "At", "Id", ""]}>
      ${data.nodes.map((row) => html`<tr key=${row.id}><td>${row.name}</td><td><${Badge} state=${STATES[row.liveness] ?? "idle"}>${row.liveness}<//></td><td>${row.state}</td><td>${row.zone}</td><td class="text">${row.locator}</td><td class="code">${row.id}</td><td>${row.liveness === "down" && row.state === "joined" ? html`<${Button} danger level="destroy" onClick=${() => setAsked(row)}>Forget…<//>` : null}</td></tr>`)}<//><//>
    <${Panel} title="Queues"><${Queues} rows=${data.queues} total=${data.queues_total} /><//>
    <${Panel} title="Replicated topics"><${Log} log=${data.log} onFailed=${setFailed} /><//>
    <${Panel} title="What came twice"><${Repeats} at=${data.events[0]?.time_us} /><//>
    <${Panel} title="What has happened">${data.events.length ? html`<ul>${data.events.map((each) => html`<li><${When} us=${each.time_us} /> ${each.kind}: ${each.detail}</li>`)}</ul>` : html`<${Empty}>Nothing yet.<//>`}<//>
    ${asked ? html`<${Confirm} title="Forget" type=${asked.name} text="Nobody will wait any more for what it holds. It is refused if it starts again." onClose=${() => setAsked(null)} action=${() => send("POST", "cluster/forget", { node: asked.id }).then(() => say(`${asked.name} is forgotten`))} />` : null}<//>`;
}
