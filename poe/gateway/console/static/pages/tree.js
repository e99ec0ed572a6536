import { html, useState, useLive, useQuery, useRef, Page, Badge, Field, Dialog, ErrorLine, Empty, Duration, When, timeText } from "../kit.js";
import { Why } from "./events.js";

function nested(rows) {
  const roots = [], path = [];
  for (const row of rows) {
    path.length = row.depth;
    const node = { row, children: [], parent: path.at(-1)?.row };
    (row.depth ? path[row.depth - 1].children : roots).push(node);
    path.push(node);
  }
  return roots;
}
const hasCrashed = ({ row, children }) => row.restarts > 0 || row.children_restarts > 0 || row.last_reason || !WELL.includes(row.state) || children.some(hasCrashed);
const WELL = ["running", "busy", "idle"];
const label = (row) => row.id || row.name || row.role || row.ref;

function Branch({ node, level, closed, toggle, crashed, onOpen }) {
  const { row, children } = node;
  const shown = crashed ? children.filter(hasCrashed) : children;
  const isOpen = !closed.has(row.ref);
  return html`<li role="treeitem" aria-level=${level} aria-expanded=${shown.length ? isOpen : undefined} data-ref=${row.ref}>
    <div class=${`row ${row.restarts ? "crashed" : ""}`} tabindex=${level === 1 ? 0 : -1} onKeyDown=${(event) => event.key === "Enter" && event.target === event.currentTarget && onOpen(node)}>${shown.length ? html`<button type="button" aria-label=${`${isOpen ? "Close" : "Open"} ${label(row)}`} onClick=${() => toggle(row.ref)}>${isOpen ? "−" : "+"}</button>` : null}
      <strong>${label(row)}</strong><span class="quiet">${row.actor}${row.strategy ? `, ${row.strategy}` : ""}${row.count > 1 ? `, ${row.count} alike` : ""}${row.role && row.role !== label(row) ? `, ${row.role}` : ""}</span>
      ${WELL.includes(row.state) ? null : html`<${Badge} state="warn">${row.state}<//>`}${row.restarts ? html`<button type="button" onClick=${() => onOpen(node)}><${Badge} state="bad">${row.restarts} ${row.restarts === 1 ? "restart" : "restarts"}<//></button>` : null}
      ${row.mailbox_length ? html`<span>${row.mailbox_length} wait</span>` : null}${row.awaits ? html`<span class="quiet">awaits ${row.awaits}</span>` : null}${row.last_reason ? html`<span class="bad">${row.last_reason}</span>` : null}</div>
    ${shown.length && isOpen ? html`<ul role="group">${shown.map((each) => html`<${Branch} key=${each.row.ref} node=${each} level=${level + 1} ...${{ closed, toggle, crashed, onOpen }} />`)}</ul>` : null}</li>`;
}

function History({ node: { row, parent }, events, onClose }) {
  const [seq, setSeq] = useState(null);
  const own = events.filter((each) => (each.child === row.id && (!parent || [parent.name, parent.id, parent.ref].includes(each.supervisor))) || (row.name && each.supervisor === row.name && !parent));
  return html`<${Dialog} title=${`What happened to ${label(row)}`} onClose=${onClose}><div class="stack">${own.length ? html`<ul>${own.map((each) => html`<li key=${each.seq}><${When} us=${each.time_us} /> ${each.kind.replaceAll("_", " ")} ${each.reason} ${each.with.length > 1 ? `together with ${each.with.join(", ")} (${each.strategy})` : each.strategy} ${each.away_s === null ? "" : `away ${each.away_s.toFixed(3)} s`} ${each.delay_s ? `back-off ${each.delay_s.toFixed(3)} s` : ""} ${each.intensity.length ? `restart ${each.intensity[0]} of ${each.intensity[1]} in ${each.intensity[2]} s` : ""} <button type="button" onClick=${() => setSeq(each.seq)}>Why?</button></li>`)}</ul>` : html`<${Empty}>Nothing that the node still knows of.<//>`}
    <form method="dialog"><button>Close</button></form></div>${seq ? html`<${Why} seq=${seq} onClose=${() => setSeq(null)} />` : null}<//>`;
}

// Lanes: who has crashed, when, and how long each was away; together with whom.
function Lanes({ events, onWhy }) {
  const shown = events.filter((each) => ["child_terminated", "restarted", "gave_up"].includes(each.kind)).slice(0, 300);
  if (!shown.length) return null;
  const times = shown.map((each) => Number(each.time_us));
  const begin = Math.min(...times), span = Math.max(Date.now() * 1000 - begin, 1e6);
  const x = (us) => Math.max(0, Math.min(1000, ((us - begin) / span) * 1000));
  const lanes = [...shown.reduce((all, each) => { const name = `${each.child} of ${each.supervisor}`; return all.set(name, [...(all.get(name) ?? []), each]); }, new Map())].slice(0, 20);
  return html`<section aria-label="Restarts by time"><h2>Restarts by time</h2><div class="lanes">${lanes.map(([name, own]) => html`<div class="lane" key=${name}><span>${name}</span>
    <svg role="img" aria-label=${`${name}: ${own.filter((each) => each.kind === "restarted").length} restarts`} viewBox="0 0 1000 20" preserveAspectRatio="none">${own.map((each) => (each.kind === "restarted"
      ? html`<rect class=${each.with.length > 1 ? "with" : "away"} x=${x(Number(each.time_us) - (each.away_s ?? 0) * 1e6)} y="4" width=${Math.max(3, ((each.away_s ?? 0) * 1e6 / span) * 1000)} height="12" onClick=${() => onWhy(each.seq)}><title>${`${timeText(each.time_us)}: ${each.text}`}</title></rect>`
      : html`<rect class="end" x=${x(Number(each.time_us))} y="0" width="3" height="20" onClick=${() => onWhy(each.seq)}><title>${`${timeText(each.time_us)}: ${each.text}`}</title></rect>`))}</svg></div>`)}
    <div class="lane quiet"><span></span><div class="ends"><span>${timeText(begin).slice(0, 19)}</span><span>red: ended; then away, or restarted with others</span><span>now</span></div></div></div></section>`;
}

export default function Tree({ query }) {
  const [, setQuery] = useQuery();
  const { data, error, isStale } = useLive("tree");
  const happened = useLive("events");
  const [closed, setClosed] = useState(new Set());
  const [opened, setOpened] = useState(null);
  const own = useRef(null);
  const crashed = query.crashed === "1";
  const toggle = (ref) => setClosed((old) => { const next = new Set(old); if (!next.delete(ref)) next.add(ref); return next; });
  const roots = nested(data?.rows ?? []).filter((each) => !crashed || hasCrashed(each));
  const onKey = (event) => {
    const all = [...own.current.querySelectorAll(".row")];
    const at = all.indexOf(document.activeElement.closest(".row"));
    const ref = document.activeElement.closest("li")?.dataset.ref;
    if (event.key === "ArrowDown") all[Math.min(all.length - 1, at + 1)]?.focus();
    else if (event.key === "ArrowUp") all[Math.max(0, at - 1)]?.focus();
    else if (event.key === "ArrowLeft" && ref && !closed.has(ref)) toggle(ref);
    else if (event.key === "ArrowRight" && ref && closed.has(ref)) toggle(ref);
    else return;
    event.preventDefault();
  };
  const last = happened.data?.events.find((each) => each.kind === "restarted");
  return html`<${Page} title="Tree" actions=${isStale ? html`<${Badge} state="warn">the node is away<//>` : null}>
    <div class="fields"><label><span><input type="checkbox" checked=${crashed} onChange=${(event) => setQuery({ crashed: event.target.checked ? "1" : undefined })} /> only what has crashed</span></label></div><${ErrorLine} error=${error} />
    ${last ? html`<p>Last restart: ${last.text} (<${Duration} s=${Math.max(0, Date.now() / 1000 - last.time_us / 1e6)} /> ago) <button type="button" onClick=${() => setQuery({ why: last.seq })}>Why?</button></p>` : null}
    <${Lanes} events=${happened.data?.events ?? []} onWhy=${(seq) => setQuery({ why: seq })} />
    ${data ? html`<section aria-label="Supervision tree">${roots.length ? html`<ul class="tree" role="tree" aria-label="Actors" ref=${own} onKeyDown=${onKey}>${roots.map((each) => html`<${Branch} key=${each.row.ref} node=${each} level=${1} ...${{ closed, toggle, crashed }} onOpen=${setOpened} />`)}</ul>` : html`<${Empty}>Nothing has crashed.<//>`}</section>` : null}
    ${opened ? html`<${History} node=${opened} events=${happened.data?.events ?? []} onClose=${() => setOpened(null)} />` : null}
    ${query.why ? html`<${Why} seq=${query.why} onClose=${() => setQuery({ why: undefined })} />` : null}<//>`;
}
