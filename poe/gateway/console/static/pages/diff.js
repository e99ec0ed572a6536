// What two messages have in common, and what not: field by field where both are JSON, else line by line.
import { html, useGet, Dialog, ErrorLine, Empty, timeText, parsed } from "../kit.js";

// So that {"a.b": 1} is another place than {"a": {"b": 1}}, and an array no object.
const step = (path, name, isArray) => (isArray ? `${path}[${name}]` : `${path}${path && "."}${name && !/[.[\]"]/.test(name) ? name : JSON.stringify(name)}`);
function flat(value, path, found) {
  if (value !== null && typeof value === "object" && !JSON.isRawJSON?.(value) && Object.keys(value).length) {
    for (const [name, each] of Object.entries(value)) flat(each, step(path, name, Array.isArray(value)), found);
  } else found.set(path || "(all)", JSON.stringify(value));
  return found;
}
function parts(text) {
  try { return flat(parsed(text), "", new Map()); } catch { return new Map((text ?? "").split("\n").map((line, index) => [`line ${index + 1}`, line])); }
}
// `beside`: of each what there is beside its value, by name.
export function Diff({ old, now, names, beside = [[], []] }) {
  const [before, after] = [old, now].map((text, index) => new Map([...beside[index], ...parts(text)]));
  const rows = [...new Set([...before.keys(), ...after.keys()])].map((path) => [path, before.get(path), after.get(path)]);
  const changed = rows.filter(([, one, other]) => one !== other);
  return html`<p>${changed.length ? `${changed.length} of ${rows.length} differ.` : "They are equal."}</p>${changed.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Differences"><table><thead><tr><th>Where</th><th>${names[0]}</th><th>${names[1]}</th></tr></thead><tbody>${changed.slice(0, 500).map(([path, one, other]) => html`<tr key=${path}><td class="code text">${path}</td><td class="code text">${one === undefined ? html`<span class="quiet">nothing</span>` : html`<del>${one}</del>`}</td><td class="code text">${other === undefined ? html`<span class="quiet">nothing</span>` : html`<ins>${other}</ins>`}</td></tr>`)}</tbody></table></div>` : null}`;
}
const besides = ({ key, headers = {}, is_tombstone: isTombstone }) => [...(key == null ? [] : [["(key)", key]]), ...Object.entries(headers).map(([name, value]) => [`(header ${name})`, value]), ...(isTombstone ? [["(tombstone)", "true"]] : [])];
export function Compare({ topic, pointers: [one, other], onClose }) {
  const first = useGet(`messages/${topic}/value`, { pointer: one }), second = useGet(`messages/${topic}/value`, { pointer: other });
  return html`<${Dialog} title="Two messages" onClose=${onClose}><div class="stack"><${ErrorLine} error=${first.error ?? second.error} />
    ${first.data && second.data ? html`${first.data.is_cut || second.data.is_cut ? html`<p>The first 1 MiB of each is compared.</p>` : null}<${Diff} old=${first.data.text} now=${second.data.text} beside=${[besides(first.data), besides(second.data)]} names=${[timeText(one), timeText(other)]} />` : html`<${Empty}>Loading…<//>`}<form method="dialog"><button>Close</button></form></div><//>`;
}

// Lines that came and went, with the two before and behind: the longest part in common stays.
const LINES_MAX = 2000;
export function changes(old, now) {
  const one = old.split("\n").slice(0, LINES_MAX), other = now.split("\n").slice(0, LINES_MAX);
  const common = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i -= 1) for (let j = other.length - 1; j >= 0; j -= 1) common[i][j] = one[i] === other[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const all = [];
  for (let i = 0, j = 0; i < one.length || j < other.length;) {
    if (i < one.length && j < other.length && one[i] === other[j]) { all.push([" ", one[i]]); i += 1; j += 1; }
    else if (j >= other.length || (i < one.length && common[i + 1][j] >= common[i][j + 1])) { all.push(["-", one[i]]); i += 1; }
    else { all.push(["+", other[j]]); j += 1; }
  }
  const isNear = (index) => all.slice(Math.max(0, index - 2), index + 3).some(([sign]) => sign !== " ");
  return all.filter((_, index) => isNear(index));
}
export const Changes = ({ old, now }) => {
  const shown = changes(old, now);
  return shown.length ? html`<pre tabindex="0">${shown.map(([sign, line]) => (sign === " " ? `  ${line}\n` : sign === "-" ? html`<del>− ${line}</del>${"\n"}` : html`<ins>+ ${line}</ins>${"\n"}`))}</pre>` : html`<p class="quiet">The rules are equal.</p>`;
};
