import { Changes } from "./diff.js";
import { html, useState, useEffect, send, Page, Panel, Field, ErrorLine, Empty, Num, timeText } from "../kit.js";

const AGO = [["600", "10 minutes"], ["3600", "an hour"], ["86400", "a day"], ["", "the oldest message"]];
const rowsOf = (found, name) => new Map((found?.[name] ?? []).map((row) => [`${row.rule}\t${row.action}`, row.messages]));

function Counts({ caption, old, now, head }) {
  const keys = [...new Set([...old.keys(), ...now.keys()])];
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table><caption>${caption}</caption><thead><tr>${head.map((each) => html`<th>${each}</th>`)}${old.size ? html`<th class="number">Before</th>` : null}<th class="number">Messages</th></tr></thead>
    <tbody>${keys.map((key) => html`<tr key=${key}>${key.split("\t").map((each) => html`<td class="text">${each}</td>`)}${old.size ? html`<td class="number"><${Num} n=${old.get(key) ?? 0} /></td>` : null}<td class="number">${old.size && (old.get(key) ?? 0) !== (now.get(key) ?? 0) ? html`<strong><${Num} n=${now.get(key) ?? 0} /></strong>` : html`<${Num} n=${now.get(key) ?? 0} />`}</td></tr>`)}</tbody></table></div>`;
}

export default function DryRun() {
  const [rules, setRules] = useState(localStorage.getItem("poe-rules") ?? "");
  useEffect(() => localStorage.setItem("poe-rules", rules), [rules]); // at once: a session may end while one writes
  const [old, setOld] = useState("");
  const [ago, setAgo] = useState("600");
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [isBusy, setIsBusy] = useState(false);
  const ask = (text) => send("POST", "dry-run", { rules: text, ago_s: ago === "" ? null : Number(ago) });
  const run = (event) => {
    event.preventDefault();
    setIsBusy(true);
    Promise.all([ask(rules), old.trim() ? ask(old) : null]).then(([now, before]) => { setFound({ now, before, texts: [old, rules] }); setError(null); }, setError).finally(() => setIsBusy(false));
  };
  const open = (event) => event.target.files[0]?.text().then(setRules);
  const { now, before, texts } = found ?? {};
  const map = (held) => new Map(Object.entries(held ?? {}));
  return html`<${Page} title="Dry run of a mapping"><${ErrorLine} error=${error} />
    <${Panel} title="Rules"><form class="stack" onSubmit=${run}><${Field} label="Rules, as in a file .toml"><textarea rows="14" class="code" spellcheck="false" value=${rules} onInput=${(event) => setRules(event.target.value)} /><//>
      <details><summary>Compare with other rules</summary><${Field} label="Rules as they were"><textarea rows="10" class="code" spellcheck="false" value=${old} onInput=${(event) => setOld(event.target.value)} /><//></details>
      <div class="fields"><${Field} label="From a file"><input type="file" accept=".toml" onChange=${open} /><//><${Field} label="Messages since"><select value=${ago} onChange=${(event) => setAgo(event.target.value)}>${AGO.map(([s, text]) => html`<option value=${s}>${text}</option>`)}</select><//><button class="main" disabled=${isBusy || !rules.trim()}>${isBusy ? "It runs…" : "Dry run"}</button></div>
      <p class="quiet">Nothing is put. At most 10 000 messages are looked at. Functions are not called: poe mapping dry-run does it.</p></form><//>
    ${now ? html`<${Panel} title=${`${now.name}: ${now.messages} messages of ${now.topics.join(", ") || "no topic"}`}>${now.is_whole ? null : html`<p>There are more messages; these are the first.</p>`}${now.warnings.map((each) => html`<p class="error">${each}</p>`)}
      ${now.messages ? html`<${Counts} caption="What becomes of them" head=${["Rule", "Action"]} old=${rowsOf(before, "rules")} now=${rowsOf(now, "rules")} /><${Counts} caption="Onto which topics" head=${["Topic"]} old=${map(before?.targets)} now=${map(now.targets)} />` : html`<${Empty}>There was no message to look at.<//>`}
      ${Object.keys(now.reasons).length ? html`<${Counts} caption="Why not" head=${["Rule and reason"]} old=${new Map()} now=${map(now.reasons)} />` : null}<p class="quiet">Rules in order: ${now.order.join(", ")}</p><//>
      ${before ? html`<${Panel} title="What is other in the rules"><${Changes} old=${texts[0]} now=${texts[1]} /><//>` : null}
      ${Object.entries(now.samples).map(([topic, samples]) => html`<${Panel} key=${topic} title=${`Some for ${topic}`}><div class="scroll" tabindex="0" role="region" aria-label=${`Some for ${topic}`}><table><thead><tr><th>Message</th><th>Before</th><th>After</th></tr></thead><tbody>${samples.map((each) => html`<tr><td>${each.topic}<br /><small class="quiet">${timeText(each.pointer)}</small></td><td class="text code">${each.before}</td><td class="text code">${each.after}</td></tr>`)}</tbody></table></div><//>`)}` : null}<//>`;
}
