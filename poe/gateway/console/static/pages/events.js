import { html, useLive, useGet, useQuery, Page, Field, Badge, Dialog, ErrorLine, Empty, When } from "../kit.js";

const STATES = { child_terminated: "bad", gave_up: "bad", start_error: "bad", shutdown_error: "warn", restarted: "ok" };

export function Why({ seq, onClose }) {
  const { data, error } = useGet("why", { seq });
  return html`<${Dialog} title="Why" onClose=${onClose}><div class="stack"><${ErrorLine} error=${error} />
    ${data ? html`<p>${data.sentence}.</p><ol>${data.chain.map((each) => html`<li key=${each.seq}><${When} us=${each.time_us} /><br />${each.kind.replaceAll("_", " ")} ${each.child} <span class="quiet">${each.supervisor}</span>${each.reason ? html`<pre>${each.reason}</pre>` : null}${each.intensity.length ? html` <span class="quiet">restart ${each.intensity[0]} of ${each.intensity[1]} in ${each.intensity[2]} s</span>` : null}</li>`)}</ol>` : null}
    <form method="dialog"><button>Close</button></form></div><//>`;
}

export default function Events({ query }) {
  const [, setQuery] = useQuery();
  const { data, error, isStale } = useLive("events");
  const wanted = (query.filter ?? "").toLowerCase();
  const rows = (data?.events ?? []).filter((each) => `${each.kind} ${each.child} ${each.supervisor} ${each.reason} ${each.who}`.toLowerCase().includes(wanted));
  return html`<${Page} title="Events" actions=${isStale ? html`<${Badge} state="warn">the node is away<//>` : null}>
    <div class="fields"><${Field} label="Filter"><input type="search" value=${query.filter ?? ""} onInput=${(event) => setQuery({ filter: event.target.value })} /><//></div><${ErrorLine} error=${error} />
    ${data ? html`<section aria-label="Events"><div class="scroll" tabindex="0" role="region" aria-label="Newest events"><table><thead><tr><th>When</th><th>What</th><th>Of</th><th>Reason</th><th>Away</th><th>Who</th><th></th></tr></thead>
      <tbody>${rows.map((each) => html`<tr key=${each.seq}><td><${When} us=${each.time_us} /></td><td><${Badge} state=${STATES[each.kind]}>${each.kind.replaceAll("_", " ")}${each.count > 1 ? ` ×${each.count}` : ""}<//></td><td class="text">${each.child} <span class="quiet">${each.supervisor}</span></td><td class="text">${each.reason}</td><td>${each.away_s === null ? "" : `${each.away_s.toFixed(3)} s`}</td><td>${each.who}</td><td><button type="button" onClick=${() => setQuery({ why: each.seq })}>Why?</button></td></tr>`)}</tbody></table></div>${rows.length ? null : html`<${Empty}>Nothing has happened since the node has started.<//>`}</section>` : null}
    ${query.why ? html`<${Why} seq=${query.why} onClose=${() => setQuery({ why: undefined })} />` : null}<//>`;
}
