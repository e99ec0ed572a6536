import { DeadLetters } from "./dead.js";
import { html, useState, useEffect, useGet, useLive, send, goFrom, part, say, Page, Panel, Button, Badge, Confirm, Dialog, Field, ErrorLine, Empty, Link, Num, Rate, Duration, When, Chart, durationText } from "../kit.js";

function Reset({ path, onClose, onDone }) {
  const [to, setTo] = useState("oldest");
  const [at, setAt] = useState("");
  const [looked, setLooked] = useState(null);
  const [error, setError] = useState(null);
  const asked = `${to} ${at}`, seen = looked?.asked === asked ? looked : null; // of what was chosen before nothing is known
  const place = () => (to === "time" ? `${Date.parse(`${at}Z`)}000` : to);
  const ask = (dry, force) => send("POST", `${path}/reset`, { to: place(), dry, force });
  const [force, setForce] = useState(false);
  const apply = () => ask(false, force).then(() => { say("the group is reset"); onDone(); onClose(); }, setError);
  return html`<${Dialog} title="Reset" onClose=${onClose}><div class="stack"><${ErrorLine} error=${error} />
    <div class="fields"><${Field} label="To"><select value=${to} onChange=${(event) => setTo(event.target.value)}><option value="oldest">the oldest message</option><option value="newest">the newest message</option><option value="time">a time</option></select><//>
      ${to === "time" ? html`<${Field} label="Time (UTC)"><input type="datetime-local" step="0.001" value=${at} onInput=${(event) => setAt(event.target.value)} /><//>` : null}
      <button type="button" onClick=${() => ask(true, true).then((found) => { setLooked({ ...found, asked }); setError(null); }, setError)}>Look</button></div>
    ${seen ? html`<table><thead><tr><th>Partition</th><th>From</th><th>To</th><th class="number">Messages</th></tr></thead><tbody>${seen.units.map((row) => html`<tr><td>${row.name}</td><td><${When} us=${row.old} /></td><td><${When} us=${row.new} /></td><td class="number">${row.messages < 0 ? `${-row.messages} once more` : `${row.messages} skipped`}</td></tr>`)}</tbody></table>
      ${seen.members ? html`<label><span><input type="checkbox" checked=${force} onChange=${(event) => setForce(event.target.checked)} /> ${seen.members} members are at work: send them away; they join anew</span></label>` : null}<div class="fields"><button type="button" class="danger" disabled=${seen.members && !force} onClick=${apply}>Reset</button></div>` : html`<p class="quiet">Look first what it would mean.</p>`}
    <form method="dialog"><button>Cancel</button></form></div><//>`;
}

function Pace({ path }) {
  const { data, reload } = useGet(`${path}/history`);
  useLive("overview", reload);
  if (!data) return null;
  const nears = data.keeps_s !== null && Math.max(0, ...data.seconds) > data.keeps_s / 20;
  const series = { messages: data.messages };
  return html`<${Panel} title="How far behind"><p>${data.per_s === null ? "Its pace is known after two samples; one is taken every 5 s while somebody looks." : html`It takes <${Rate} n=${data.per_s} />; ${data.catch_up_s === null ? "it does not come closer" : data.catch_up_s ? html`it will have caught up in <${Duration} s=${data.catch_up_s} />` : "it is not behind"}.`}
      ${data.keeps_s === null ? " Its topics keep messages without a limit of time." : html` Its topics keep messages for <${Duration} s=${data.keeps_s} />${data.loss_s === null ? "" : html`: <strong class=${data.loss_s < 3600 ? "bad" : ""}>it will lose messages in <${Duration} s=${data.loss_s} /></strong>, if it takes none`}.`}</p>
    ${data.times_s.length > 1 ? html`<${Chart} times_s=${data.times_s} series=${series} caption="Messages behind" /><${Chart} times_s=${data.times_s} series=${nears ? { behind: data.seconds, kept: data.times_s.map(() => data.keeps_s) } : { behind: data.seconds }} caption="Time behind" format=${durationText} />` : null}<//>`;
}

function Shadow({ path, name, onClose }) {
  const [given, setGiven] = useState({ name: `${name}.shadow`, to: "here", at: "" });
  const [error, setError] = useState(null);
  const make = (event) => {
    event.preventDefault();
    const next = goFrom(), to = given.to === "time" ? `${Date.parse(`${given.at}Z`)}000` : given.to;
    send("POST", `${path}/shadow`, { name: given.name, to }).then((made) => { say(`group ${made.name} is made`); onClose(); next("group", { group: made.id }); }, setError);
  };
  return html`<${Dialog} title="Replay in a shadow" onClose=${onClose}><form onSubmit=${make}><p>A group of its own for the same topics: whoever joins it reads again what you say, and ${name} and its members notice nothing.</p><${ErrorLine} error=${error} />
    <${Field} label="Its name"><input required value=${given.name} onInput=${(event) => setGiven({ ...given, name: event.target.value })} /><//>
    <${Field} label="Begins at"><select value=${given.to} onChange=${(event) => setGiven({ ...given, to: event.target.value })}><option value="here">where ${name} is</option><option value="oldest">the oldest message</option><option value="newest">the newest message</option><option value="time">a time</option></select><//>
    ${given.to === "time" ? html`<${Field} label="Time (UTC)"><input required type="datetime-local" step="0.001" value=${given.at} onInput=${(event) => setGiven({ ...given, at: event.target.value })} /><//>` : null}
    <div class="fields"><button class="main">Make it</button><button type="button" onClick=${onClose}>Cancel</button></div></form><//>`;
}

export default function Group({ query }) {
  const path = `groups/${part(query.group)}`;
  const { data, error, reload } = useGet(path);
  const [asked, setAsked] = useState(null);
  useEffect(() => setAsked(null), [path]); // of another one nothing was asked
  const [failed, setFailed] = useState(null);
  useLive("overview", reload);
  if (!data) return html`<${Page} title="Group"><${ErrorLine} error=${error} />${error ? null : html`<p>Loading…</p>`}<//>`;
  const act = (action) => send("POST", `${path}/${action}`, {}).then(() => { say(action); setFailed(null); reload(); }, setFailed);
  const isPaused = data.state === "paused";
  const actions = html`<${Button} level="operate" onClick=${() => act(isPaused ? "resume" : "pause")}>${isPaused ? "Resume" : "Pause"}<//><${Button} level="operate" onClick=${() => setAsked("reset")}>Reset…<//><${Button} level="operate" onClick=${() => setAsked("shadow")}>Shadow…<//><${Button} danger level="destroy" onClick=${() => setAsked("delete")}>Delete…<//>`;
  return html`<${Page} title=${data.name} actions=${actions}><${ErrorLine} error=${error ?? failed} />
    <p><${Badge} state=${data.state === "ok" ? "ok" : "warn"}>${data.state}<//> ${data.mode}, generation ${data.generation}, made <${When} us=${data.created_us} /></p>
    <${Panel} title="Lag"><div class="scroll" tabindex="0" role="region" aria-label="Lag"><table><thead><tr><th>Partition</th><th>Position</th><th>Newest</th><th class="number">Behind by</th><th class="number">and</th>${data.mode === "shared" ? html`<th class="number">Leases</th><th>oldest lease</th><th class="number">Come back</th>` : null}</tr></thead>
      <tbody>${data.units.map((row) => html`<tr key=${row.id}><td><${Link} page="messages" query=${{ topic: row.id, place: "after", at: row.position }}>${row.name}<//></td><td><${When} us=${row.position} /></td><td><${When} us=${row.newest} /></td><td class="number"><${Num} n=${row.messages} /></td><td class="number">${row.seconds === null ? "–" : html`<${Duration} s=${row.seconds} />`}</td>${data.mode === "shared" ? html`<td class="number"><${Num} n=${row.more.leases} /></td><td><${When} us=${row.more.oldest_lease_us} /></td><td class="number"><${Num} n=${row.more.returned_ranges} /></td>` : null}</tr>`)}</tbody></table></div><//>
    <${Pace} path=${path} />
    <${Panel} title=${`Members (${data.members.length})`}>${data.members.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Members"><table><thead><tr>${Object.keys(data.members[0]).map((name) => html`<th>${name.replaceAll("_", " ")}</th>`)}</tr></thead><tbody>${data.members.map((row) => html`<tr>${Object.values(row).map((value) => html`<td class="text">${value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value)}</td>`)}</tr>`)}</tbody></table></div>` : html`<${Empty}>Nobody has joined.<//>`}<//>
    <${Panel} title="What has happened">${data.events.length ? html`<ul>${data.events.slice(0, 50).map((each) => html`<li><${When} us=${each.time_us} /> ${each.kind} ${each.text}</li>`)}</ul>` : html`<${Empty}>Nothing yet.<//>`}<//>
    ${data.mode === "shared" || data.name.startsWith("mapping.") ? html`<${DeadLetters} path=${path} name=${data.name} />` : null}
    ${asked === "shadow" ? html`<${Shadow} path=${path} name=${data.name} onClose=${() => setAsked(null)} />` : null}
    ${asked === "reset" ? html`<${Reset} path=${path} onClose=${() => setAsked(null)} onDone=${reload} />` : null}
    ${asked === "delete" ? html`<${Confirm} title="Delete" type=${data.name} text="Its positions will be gone; its members are told." onClose=${() => setAsked(null)} action=${(name) => { const next = goFrom(); return send("DELETE", path, { name }).then(() => { say("the group is deleted"); next("groups"); }); }} />` : null}<//>`;
}
