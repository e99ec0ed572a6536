import { html, useState, useGet, useLive, send, go, say, Page, Panel, Button, Badge, Confirm, Dialog, Field, ErrorLine, Empty, Link, Num, Duration, When } from "../kit.js";

function Reset({ path, onClose, onDone }) {
  const [to, setTo] = useState("oldest");
  const [at, setAt] = useState("");
  const [seen, setSeen] = useState(null);
  const [error, setError] = useState(null);
  const place = () => (to === "time" ? `${Date.parse(`${at}Z`)}000` : to);
  const ask = (dry, force) => send("POST", `${path}/reset`, { to: place(), dry, force });
  const [force, setForce] = useState(false);
  const apply = () => ask(false, force).then(() => { say("the group is reset"); onDone(); onClose(); }, setError);
  return html`<${Dialog} title="Reset" onClose=${onClose}><div class="stack"><${ErrorLine} error=${error} />
    <div class="fields"><${Field} label="To"><select value=${to} onChange=${(event) => { setTo(event.target.value); setSeen(null); }}><option value="oldest">the oldest message</option><option value="newest">the newest message</option><option value="time">a time</option></select><//>
      ${to === "time" ? html`<${Field} label="Time (UTC)"><input type="datetime-local" step="0.001" value=${at} onInput=${(event) => { setAt(event.target.value); setSeen(null); }} /><//>` : null}
      <button type="button" onClick=${() => ask(true, true).then((found) => { setSeen(found); setError(null); }, setError)}>Look</button></div>
    ${seen ? html`<table><thead><tr><th>Unit</th><th>From</th><th>To</th><th class="number">Messages</th></tr></thead><tbody>${seen.units.map((row) => html`<tr><td>${row.name}</td><td><${When} us=${row.old} /></td><td><${When} us=${row.new} /></td><td class="number">${row.messages < 0 ? `${-row.messages} once more` : `${row.messages} skipped`}</td></tr>`)}</tbody></table>
      ${seen.members ? html`<label><span><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> ${seen.members} members are at work: send them away; they join anew</span></label>` : null}<div class="fields"><button type="button" class="danger" disabled=${seen.members && !force} onClick=${apply}>Reset</button></div>` : html`<p class="quiet">Look first what it would mean.</p>`}
    <form method="dialog"><button>Cancel</button></form></div><//>`;
}

function DeadLetters({ path, name }) {
  const [filter, setFilter] = useState("");
  const { data, error, reload } = useGet(`${path}/dead`, { filter });
  const [failed, setFailed] = useState(null);
  const [isAsked, setIsAsked] = useState(false);
  useLive("overview", reload);
  const redrive = (body) => send("POST", `${path}/dead/redrive`, body).then((found) => { say(`${found.messages} messages put back`); setFailed(null); reload(); }, setFailed);
  const rows = data?.rows ?? [];
  return html`<${Panel} title="Dead letters"><${ErrorLine} error=${error ?? failed} />
    <div class="fields"><${Field} label="Reason holds"><input value=${filter} onInput=${(event) => setFilter(event.target.value)} /><//>${rows.length ? html`<${Button} level="operate" onClick=${() => redrive({})}>Put all back<//><${Button} danger level="destroy" onClick=${() => setIsAsked(true)}>Discard all…<//>` : null}${data ? html`<${Link} page="messages" query=${{ topic: data.id }}>All that there ever were<//>` : null}</div>
    ${rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Dead letters"><table><caption>${data.open === null ? "On the node that was asked" : `${data.open} that nobody has dealt with`}</caption><thead><tr><th>Given up</th><th>Was on</th><th class="number">Attempts</th><th>Reason</th><th>Message</th><th></th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.pointer}><td><${When} us=${row.pointer} /></td><td><${Link} page="messages" query=${{ topic: row.topic.id, open: row.at }}>${row.topic.name}<//></td><td class="number">${row.attempts}</td><td class="text">${row.reason}</td><td class="text code">${row.preview.slice(0, 300)}</td><td>${data.open === null ? null : html`<${Button} level="operate" onClick=${() => redrive({ pointer: row.pointer })}>Put back<//>`}</td></tr>`)}</tbody></table></div>` : html`<${Empty}>${filter ? "None has such a reason." : "There is none to deal with."}<//>`}
    ${isAsked ? html`<${Confirm} title="Discard" type=${name} text="No redrive will put these messages back. They stay in the dead letter topic until that is trimmed." onClose=${() => setIsAsked(false)} action=${(typed) => send("POST", `${path}/dead/discard`, { name: typed }).then((found) => { say(`${found.messages} discarded`); reload(); })} />` : null}<//>`;
}

export default function Group({ query }) {
  const path = `groups/${query.group ?? ""}`;
  const { data, error, reload } = useGet(path);
  const [asked, setAsked] = useState(null);
  const [failed, setFailed] = useState(null);
  useLive("overview", reload);
  if (!data) return html`<${Page} title="Group"><${ErrorLine} error=${error} />${error ? null : html`<p>Loading…</p>`}<//>`;
  const act = (action) => send("POST", `${path}/${action}`, {}).then(() => { say(action); setFailed(null); reload(); }, setFailed);
  const isPaused = data.state === "paused";
  const actions = html`<${Button} level="operate" onClick=${() => act(isPaused ? "resume" : "pause")}>${isPaused ? "Resume" : "Pause"}<//><${Button} level="operate" onClick=${() => setAsked("reset")}>Reset…<//><${Button} danger level="destroy" onClick=${() => setAsked("delete")}>Delete…<//>`;
    return html`<${Page} title=${data.name} actions=${actions}><${ErrorLine} error=${error ?? failed} />
    <p><${Badge} state=${data.state === "ok" ? "ok" : "warn"}>${data.state}<//> ${data.mode}, generation ${data.generation}, made <${When} us=${data.created_us} /></p>
    <${Panel} title="Lag"><div class="scroll" tabindex="0" role="region" aria-label="Lag"><table><thead><tr><th>Unit</th><th>Position</th><th>Newest</th><th class="number">Behind by</th><th class="number">and</th>${data.mode === "shared" ? html`<th class="number">Leases</th><th>oldest lease</th><th class="number">Come back</th>` : null}</tr></thead>
      <tbody>${data.units.map((row) => html`<tr key=${row.id}><td><${Link} page="messages" query=${{ topic: row.id, place: "after", at: row.position }}>${row.name}<//></td><td><${When} us=${row.position} /></td><td><${When} us=${row.newest} /></td><td class="number"><${Num} n=${row.messages} /></td><td class="number">${row.seconds === null ? "–" : html`<${Duration} s=${row.seconds} />`}</td>${data.mode === "shared" ? html`<td class="number"><${Num} n=${row.more.leases} /></td><td><${When} us=${row.more.oldest_lease_us} /></td><td class="number"><${Num} n=${row.more.returned_ranges} /></td>` : null}</tr>`)}</tbody></table></div><//>
    <${Panel} title=${`Members (${data.members.length})`}>${data.members.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Members"><table><thead><tr>${Object.keys(data.members[0]).map((name) => html`<th>${name.replaceAll("_", " ")}</th>`)}</tr></thead><tbody>${data.members.map((row) => html`<tr>${Object.values(row).map((value) => html`<td class="text">${value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value)}</td>`)}</tr>`)}</tbody></table></div>` : html`<${Empty}>Nobody has joined.<//>`}<//>
    <${Panel} title="What has happened">${data.events.length ? html`<ul>${data.events.slice(0, 50).map((each) => html`<li><${When} us=${each.time_us} /> ${each.kind} ${each.text}</li>`)}</ul>` : html`<${Empty}>Nothing yet.<//>`}<//>
    ${data.mode === "shared" || data.name.startsWith("mapping.") ? html`<${DeadLetters} path=${path} name=${data.name} />` : null}
    ${asked === "reset" ? html`<${Reset} path=${path} onClose=${() => setAsked(null)} onDone=${reload} />` : null}
    ${asked === "delete" ? html`<${Confirm} title="Delete" type=${data.name} text="Its positions will be gone; its members are told." onClose=${() => setAsked(null)} action=${(name) => send("DELETE", path, { name }).then(() => { say("the group is deleted"); go("groups"); })} />` : null}<//>`;
}
