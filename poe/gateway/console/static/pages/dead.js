import { html, useState, useGet, useLive, useQuery, send, say, Page, Panel, Table, Button, Confirm, Dialog, Field, Link, ErrorLine, Empty, Num, When } from "../kit.js";
import { Diff } from "./diff.js";

function Good({ path, pointer, onClose }) {
  const { data, error } = useGet(`${path}/dead/good`, { pointer });
  return html`<${Dialog} title="Beside the last good message of its key" onClose=${onClose}><div class="stack"><${ErrorLine} error=${error} />
    ${data ? data.good ? html`<${Diff} old=${data.good.preview} now=${data.letter.preview} names=${["good", "dead"]} />` : html`<${Empty}>No earlier message of its key was found.<//>` : null}<form method="dialog"><button>Close</button></form></div><//>`;
}

export function DeadLetters({ path, name }) {
  const [filter, setFilter] = useState("");
  const { data, error, reload } = useGet(`${path}/dead`, { filter });
  const [failed, setFailed] = useState(null);
  const [asked, setAsked] = useState(null);
  const [compared, setCompared] = useState(null);
  useLive("overview", reload);
  const done = (found, what) => { say(`${found.messages} messages ${what}${found.passed ? `; ${found.passed} letters passed over, of topics from which the group takes nothing` : ""}`); setFailed(null); reload(); };
  const redrive = (body) => send("POST", `${path}/dead/redrive`, body).then((found) => done(found, "put back"), setFailed);
  const rows = data?.rows ?? [];
  const which = filter ? "these" : "all";
  const isMore = data?.open > data?.looked; // behind those that are shown, which are the oldest
  const all = filter ? { reason: filter } : {};
  return html`<${Panel} title="Dead letters"><${ErrorLine} error=${error ?? failed} />
    <div class="fields"><${Field} label="Reason holds"><input value=${filter} onInput=${(event) => setFilter(event.target.value)} /><//>${(rows.length && (data.open !== null || !filter)) || (filter && isMore) ? html`<${Button} level="operate" onClick=${() => redrive(all)}>Put ${which} back<//><${Button} danger level="destroy" onClick=${() => setAsked(all)}>Discard ${which}…<//>` : null}${data ? html`<${Link} page="messages" query=${{ topic: data.id }}>All that there ever were<//>` : null}</div>
    ${data?.reasons.length ? html`<p>${data.reasons.map((each) => html`<button type="button" disabled=${!each.reason} aria-pressed=${Boolean(filter) && filter === each.reason} onClick=${() => setFilter(filter === each.reason ? "" : each.reason)}>${each.messages} × ${each.reason.slice(0, 80) || "without a reason"}</button> `)}</p>` : null}
    ${rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Dead letters"><table><caption>${data.open === null ? "On the node that was asked" : `${data.open} that nobody has dealt with${isMore ? `; the oldest ${data.looked} were looked at` : ""}`}</caption><thead><tr><th>Given up</th><th>Was on</th><th class="number">Attempts</th><th>Reason</th><th>Message</th><th></th></tr></thead>
      <tbody>${rows.map((row) => html`<tr key=${row.pointer}><td><${When} us=${row.pointer} /></td><td><${Link} page="messages" query=${{ topic: row.topic.id, open: row.at }}>${row.topic.name}<//></td><td class="number">${row.attempts}</td><td class="text">${row.reason}</td><td class="text code">${row.key === null ? null : html`<strong>${row.key}</strong> `}${row.preview.slice(0, 300)}</td>
        <td class="line">${data.open === null ? null : html`<${Button} level="operate" onClick=${() => redrive({ pointer: row.pointer })}>Put back<//> <${Button} onClick=${() => setCompared(row.pointer)}>Compare<//> <${Button} danger level="destroy" onClick=${() => setAsked({ pointer: row.pointer })}>Discard…<//>`}</td></tr>`)}</tbody></table></div>` : data && html`<${Empty}>${filter ? (isMore ? `None of the oldest ${data.looked} has such a reason.` : "None has such a reason.") : "There is none to deal with."}<//>`}
    ${compared ? html`<${Good} path=${path} pointer=${compared} onClose=${() => setCompared(null)} />` : null}
    ${asked ? html`<${Confirm} title="Discard" type=${name} text="No redrive will put these messages back. They stay in the dead letter topic until that is trimmed." onClose=${() => setAsked(null)} action=${(typed) => send("POST", `${path}/dead/discard`, { name: typed, ...asked }).then((found) => done(found, "discarded"))} />` : null}<//>`;
}

const COLUMNS = [
  { key: "name", title: "Group or mapping", render: (row) => html`<${Link} page="group" query=${{ group: row.id }}>${row.name}<//>` },
  { key: "open", title: "Open", align: "number", render: (row) => (row.open === null ? "some" : html`<${Num} n=${row.open} />`) },
  { key: "reasons", title: "Of the oldest, by reason", render: (row) => html`<ul class="plain">${row.reasons.map((each) => html`<li>${each.messages} × ${each.reason || "without a reason"}</li>`)}</ul>` },
  { key: "newest", title: "Newest of these", render: (row) => html`<${When} us=${row.newest} />` },
];

export default function Dead({ query }) {
  const [, setQuery] = useQuery();
  const { data, error, reload } = useGet("dead", { filter: query.filter, offset: query.offset });
  useLive("overview", reload);
  return html`<${Page} title="Dead letters"><${ErrorLine} error=${error} /><div class="fields"><${Field} label="Filter"><input type="search" value=${query.filter ?? ""} onInput=${(event) => setQuery({ filter: event.target.value, offset: undefined })} /><//></div>
    ${data ? html`<section aria-label="Dead letters"><${Table} columns=${COLUMNS} rows=${data.rows} total=${data.total} rowKey=${(row) => row.id} caption="Groups that have given up messages" empty="Nobody has given up a message that is still to be dealt with." />${data.is_whole ? null : html`<p class="quiet">Not all groups were asked: there are too many, so filter for others, or nodes of their cluster are down.</p>`}</section>` : null}<//>`;
}
