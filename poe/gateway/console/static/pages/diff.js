// What two messages have in common, and what not: field by field where both are JSON, else line by line.
import { html, useGet, Dialog, ErrorLine, Empty, timeText } from "../kit.js";

function flat(value, path, found) {
  if (value !== null && typeof value === "object" && Object.keys(value).length) {
    for (const [name, each] of Object.entries(value)) flat(each, path ? `${path}.${name}` : name, found);
  } else found.set(path || "(all)", JSON.stringify(value));
  return found;
}
function parts(text) {
  try { return flat(JSON.parse(text), "", new Map()); } catch { return new Map((text ?? "").split("\n").map((line, index) => [`line ${index + 1}`, line])); }
}
export function Diff({ old, now, names }) {
  const [before, after] = [parts(old), parts(now)];
  const rows = [...new Set([...before.keys(), ...after.keys()])].map((path) => [path, before.get(path), after.get(path)]);
  const changed = rows.filter(([, one, other]) => one !== other);
  return html`<p>${changed.length ? `${changed.length} of ${rows.length} differ.` : "They are equal."}</p>${changed.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Differences"><table><thead><tr><th>Where</th><th>${names[0]}</th><th>${names[1]}</th></tr></thead><tbody>${changed.slice(0, 500).map(([path, one, other]) => html`<tr key=${path}><td class="code text">${path}</td><td class="code text">${one === undefined ? html`<span class="quiet">nothing</span>` : html`<del>${one}</del>`}</td><td class="code text">${other === undefined ? html`<span class="quiet">nothing</span>` : html`<ins>${other}</ins>`}</td></tr>`)}</tbody></table></div>` : null}`;
}
export function Compare({ topic, pointers: [one, other], onClose }) {
  const first = useGet(`messages/${topic}/value`, { pointer: one }), second = useGet(`messages/${topic}/value`, { pointer: other });
  return html`<${Dialog} title="Two messages" onClose=${onClose}><div class="stack"><${ErrorLine} error=${first.error ?? second.error} />
    ${first.data && second.data ? html`<${Diff} old=${first.data.text} now=${second.data.text} names=${[timeText(one), timeText(other)]} />` : html`<${Empty}>Loading…<//>`}<form method="dialog"><button>Close</button></form></div><//>`;
}
