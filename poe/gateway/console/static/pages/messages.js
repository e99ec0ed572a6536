import { Compare } from "./diff.js";
import { html, useState, useEffect, useLayoutEffect, useRef, useGet, useLive, useQuery, useKeys, get, send, go, part, say, Page, Link, Field, Button, Badge, Dialog, ErrorLine, Empty, Bytes, Num, timeText, numberText, parsed, isUtc } from "../kit.js";

const DUMPED_MAX = 10_000_000;
const FORMS = ["auto", "text", "json", "hex", "msgpack", "envelope"];
// A time as it is typed: in UTC where times are shown so, unless it says its zone. What is none stays, and is refused.
// A date alone is its midnight there, which browsers take for the one in UTC.
function micros(text) {
  const full = /^\d{4}-\d\d-\d\d$/.test(text) ? `${text}T00:00` : text;
  const isPlain = isUtc() && /\d:\d\d(:\d\d(\.\d*)?)?$/.test(full) && !/[+-]\d\d:\d\d$/.test(full);
  const time = Date.parse(isPlain ? `${full}Z` : full);
  return Number.isNaN(time) ? text : `${time}000`;
}
const pointerOf = (text) => (/^\d+$/.test(text) ? text : micros(text));

function pretty(found, form) {
  if (found.form === "text" && (form === "json" || (form === "auto" && /^\s*[[{]/.test(found.text)))) {
    try { return JSON.stringify(parsed(found.text), null, 2); } catch { return found.text; }
  }
  return found.text;
}

function Opened({ topic, pointer, onClose }) {
  const [form, setForm] = useState("auto");
  const { data, error } = useGet(`messages/${topic}/value`, { pointer, as: form });
  const [edited, setEdited] = useState(null);
  const [failed, setFailed] = useState(null);
  // Of the form in which it is edited: others tell no key and no headers.
  const edit = () => setEdited({ value: data.text, ...(data.key == null ? {} : { key: data.key }), ...(data.headers && Object.keys(data.headers).length ? { headers: data.headers } : {}) });
  const again = () => send("POST", `messages/${topic}`, edited)
    .then((found) => { say(`put again at ${found.pointer}`); onClose(); }, setFailed);
  const text = data ? pretty(data, form) : "";
  return html`<${Dialog} title=${`Message ${pointer}`} onClose=${onClose}><div class="stack"><${ErrorLine} error=${error ?? failed} />
    ${data ? html`<div>${timeText(pointer)}, <${Bytes} n=${data.bytes} />${data.is_cut ? " (the first 1 MiB is shown)" : ""}${data.is_tombstone ? ", a tombstone" : ""}</div>
      ${data.error ? html`<p class="error">${data.error}</p>` : null}
      ${data.key !== undefined ? html`<div>key <code>${data.key ?? "none"}</code>${Object.entries(data.headers ?? {}).map(([name, value]) => html`, ${name} <code>${value}</code>`)}</div>` : null}
      <div class="fields"><${Field} label="Shown as"><select value=${form} onChange=${(event) => setForm(event.target.value)}>${FORMS.map((each) => html`<option value=${each} selected=${each === form}>${each}</option>`)}</select><//>
        ${navigator.clipboard ? html`<button type="button" onClick=${() => navigator.clipboard.writeText(text).then(() => say("copied"), setFailed)}>Copy</button>` : null}
        <a href=${`/console/api/messages/${topic}/raw?pointer=${pointer}`} download>Download</a>
        ${data.key ? html`<${Link} page="follow" query=${{ text: data.key, at: pointer }}>Follow its key<//>` : null}<${Link} page="instant" query=${{ time_us: pointer }}>All topics then<//>
        ${edited === null && data.is_exact ? html`<${Button} level="operate" onClick=${edit}>Put again…<//>` : null}</div>
      ${edited === null ? html`<pre tabindex="0">${text}</pre>` : html`<${Field} label="Value"><textarea rows="10" value=${edited.value} onInput=${(event) => setEdited({ ...edited, value: event.target.value })} /><//><div class="fields"><button type="button" class="main" onClick=${again}>Put</button></div>`}` : null}
    <form method="dialog"><button>Close</button></form></div><//>`;
}

function Produce({ topic, isEnveloped, onClose, onDone }) {
  const [given, setGiven] = useState({ value: "", key: "", headers: "" });
  const [error, setError] = useState(null);
  const set = (name) => (event) => setGiven({ ...given, [name]: event.target.value });
  const put = (event) => {
    event.preventDefault();
    const headers = Object.fromEntries(given.headers.split("\n").filter(Boolean).map((line) => { const [name, ...rest] = line.split(":"); return [name.trim(), rest.join(":").trim()]; }));
    send("POST", `messages/${topic}`, { value: given.value, ...(isEnveloped && given.key ? { key: given.key } : {}), ...(isEnveloped ? { headers } : {}) })
      .then((found) => { say(`put at ${found.pointer}`); onDone(); onClose(); }, setError);
  };
  return html`<${Dialog} title="Put a message" onClose=${onClose}><form onSubmit=${put}><${ErrorLine} error=${error} />
    ${isEnveloped ? html`<${Field} label="Key"><input value=${given.key} onInput=${set("key")} /><//><${Field} label="Headers, one a line as name: value"><textarea rows="2" value=${given.headers} onInput=${set("headers")} /><//>` : null}
    <${Field} label="Value"><textarea rows="8" autofocus value=${given.value} onInput=${set("value")} /><//>
    <div class="fields"><button class="main">Put</button><button type="button" onClick=${onClose}>Cancel</button></div></form><//>`;
}

const KINDS = [["text", "text", "a text"], ["regex", "regular expression", "order-[0-9]+"], ["json", "fields", '{"amount": {"gt": 100}}'], ["cel", "CEL", "body.amount > 100"]];

function Histogram({ path, turn, onPick }) {
  const { data } = useGet(`${path}/histogram`, { turn });
  if (!data?.counts.length) return null;
  const most = Math.max(...data.counts, 1), wide = 1000 / data.counts.length;
  const at = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    return Math.max(0, Math.min(data.counts.length - 1, Math.floor(((event.clientX - left) / width) * data.counts.length)));
  };
  return html`<figure class="histogram"><svg role="img" aria-label=${`Messages by time, ${numberText(most)} at most in one of ${data.counts.length} parts`} viewBox="0 0 1000 40" preserveAspectRatio="none" onClick=${(event) => onPick(data.times_us[at(event)])}>
    ${data.counts.map((count, index) => (count ? html`<rect x=${index * wide} y=${40 - Math.max(2, (count / most) * 40)} width=${wide * 0.85} height=${Math.max(2, (count / most) * 40)}><title>${`${timeText(data.times_us[index])}: ${numberText(count)} messages`}</title></rect>` : null))}</svg>
    <figcaption class="ends quiet"><span>${timeText(data.times_us[0]).slice(0, 19)}</span><span>messages by time; a click goes there</span><span>${timeText(data.times_us.at(-1)).slice(0, 19)}</span></figcaption></figure>`;
}

function Again({ path, topic, name, first, last, onClose }) {
  const [given, setGiven] = useState({ after: String(BigInt(first) - 1n), last, to: name });
  const [looked, setLooked] = useState(null);
  const [error, setError] = useState(null);
  const seen = looked?.given === given ? looked : null; // of what was given before nothing is known
  const set = (field) => (event) => setGiven({ ...given, [field]: event.target.value.trim() });
  const ask = (dry) => send("POST", `${path}/again`, { after: pointerOf(given.after), last: pointerOf(given.last), to: given.to === name ? topic : encodeURIComponent(given.to), dry }); // a name of bytes cannot be typed
  const look = (event) => { event.preventDefault(); ask(true).then((found) => { setLooked({ ...found, given }); setError(null); }, setError); };
  const put = () => ask(false).then((found) => { say(`${found.messages} messages put again`); onClose(); }, setError);
  return html`<${Dialog} title="Put many again" onClose=${onClose}><form onSubmit=${look}><p>Messages of a range are put once more, as they are and in their order.</p><${ErrorLine} error=${error} />
    <${Field} label="Behind (pointer or time)"><input required value=${given.after} onInput=${set("after")} /><//><${Field} label="Up to (pointer or time)"><input required value=${given.last} onInput=${set("last")} /><//><${Field} label="Onto topic"><input required value=${given.to} onInput=${set("to")} /><//>
    ${seen ? html`<p>${numberText(seen.messages)} messages would be put onto <strong>${given.to}</strong>.</p>` : html`<p class="quiet">Look first how many these are.</p>`}
    <div class="fields"><button>Look</button><button type="button" class="main" disabled=${!seen?.messages} onClick=${put}>Put again</button><button type="button" onClick=${onClose}>Cancel</button></div></form><//>`;
}

function Rows({ rows, onOpen, caption, chosen, choose }) {
  const mark = (pointer) => { const next = new Set(chosen); if (!next.delete(pointer)) next.add(pointer); choose(next); };
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table><caption>${caption}</caption><thead><tr><th><span class="hidden">Chosen</span></th><th>Time and pointer</th><th>Key</th><th class="number">Size</th><th>Message</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.pointer} class="opens message" tabindex="0" onClick=${(event) => event.target.closest("input") || onOpen(row.pointer)} onKeyDown=${(event) => { if (event.key === "Enter") onOpen(row.pointer); else if (event.key === "x") { event.preventDefault(); mark(row.pointer); } }}>
      <td><input type="checkbox" tabindex="-1" aria-label=${`Choose ${row.pointer}`} checked=${chosen.has(row.pointer)} onChange=${() => mark(row.pointer)} /></td><td class="line">${timeText(row.pointer)}<br /><small class="quiet">${row.pointer}</small></td><td class="code">${row.key ?? ""}</td><td class="number"><${Bytes} n=${row.bytes} /></td><td class="code"><div class="line">${row.form === "hex" ? html`<span class="quiet">hex</span> ` : null}${row.preview}</div></td></tr>`)}</tbody></table></div>`;
}

export default function Messages({ query }) {
  const [, setQuery] = useQuery();
  const { place, at, text, kind, open } = query, topic = part(query.topic);
  const path = `messages/${topic}`;
  const led = useRef(open); // whoever follows a link to a message need not know in which partition it is
  const { data, error, reload } = useGet(path, { place, at, holding: led.current });
  const [found, setFound] = useState(null);
  const [tailed, setTailed] = useState(null);
  const [isPutting, setIsPutting] = useState(false);
  const [again, setAgain] = useState(null);
  const [chosen, choose] = useState(new Set());
  const [compared, setCompared] = useState(null);
  const [failed, setFailed] = useState(null);
  const shownFrom = place === "after" ? at ?? "" : "", [typed, setTyped] = useState(shownFrom);
  useLayoutEffect(() => setTyped(shownFrom), [shownFrom]); // at once: later it would take what is typed meanwhile
  const [wanted, setWanted] = useState({ text: text ?? "", kind: kind ?? "text" });
  const want = (more) => setWanted({ ...Object.assign(wanted, more) }); // at once: what is typed next may come before the page is drawn anew
  const { isStale } = useLive(tailed ? `tail:${topic}` : null, ({ data: more, error: failed }) => setTailed((old) => {
    if (!old || !more) return old && { ...old, error: failed };
    const name = old.later ? "later" : "rows", all = [...old[name], ...more.rows]; // what comes while it is paused is shown then
    return { ...old, [name]: all.slice(-500), skipped: old.skipped + more.skipped + (old.later ? Math.max(0, all.length - 500) : 0), error: undefined };
  }));
  const asked = useRef(0);
  const search = (after) => {
    const own = asked.current += 1, take = (next) => own === asked.current && setFound(next); // of two that run the last counts
    get(`${path}/search`, { text, kind, after }).then(
      (more) => take((old) => ({ ...more, rows: [...(after ? old?.rows ?? [] : []), ...more.rows], failed: (after ? old?.failed ?? 0 : 0) + (more.failed ?? 0), reason: more.reason || old?.reason })),
      (failed) => take((old) => ({ ...(after ? old : { rows: [], is_end: true }), error: failed }))); // what was found before stays, and where it was
  };
  useEffect(() => { asked.current += 1; setFound(null); if (text) search(); }, [topic, text, kind]);
  // Whoever says the same again means what there is by now.
  const find = (given) => { setTailed(null); if (given.text && given.text === text && given.kind === kind) search(); else setQuery(given); };
  const show = (patch) => { setTailed(null); reload(); setQuery({ text: undefined, kind: undefined, at: undefined, ...patch }); };
  const opened = (pointer) => setQuery({ open: pointer });
  const step = (by) => { const all = [...document.querySelectorAll("tr.message")]; all[Math.max(0, Math.min(all.length - 1, all.indexOf(document.activeElement) + by))]?.focus(); };
  const tail = () => { asked.current += 1; setFound(null); setTailed({ rows: [], skipped: 0, later: null }); };
  useKeys({ j: () => step(1), k: () => step(-1), t: () => (tailed ? setTailed(null) : tail()) }, { "j k": "next and previous message", Enter: "open the message", t: "tail, and back", x: "choose the message" });
  useEffect(() => { choose(new Set()); setCompared(null); setFailed(null); setTailed((old) => old && { rows: [], skipped: 0, later: null }); }, [topic]);
  useEffect(() => { if (data && data.id !== topic) setQuery({ topic: data.id }); }, [data]); // one partition of that topic
  const parts = useRef([]);
  if (data) parts.current = data.partitions; // whoever chooses another one goes on in the same field
  const rows = data?.rows ?? [];
  const marked = [...chosen].sort((one, other) => (BigInt(one) < BigInt(other) ? -1 : 1));
  const putMarked = async () => {
    try {
      for (const each of marked) {
        await send("POST", `${path}/again`, { after: String(BigInt(each) - 1n), last: each, to: topic, dry: false });
        choose((old) => new Set([...old].filter((other) => other !== each))); // it is not put twice where the next one fails
      }
      say(`${marked.length} messages put again`);
      setFailed(null);
    } catch (error) { setFailed(error); }
    reload();
  };
  const list = tailed ? tailed.rows : found ? found.rows : rows;
  return html`<${Page} title=${data?.name ?? "Messages"} actions=${html`<${Link} page="topic" query=${{ topic }}>Topic<//>${list.length ? html`<${Button} level="operate" onClick=${() => setAgain({ topic, name: data?.name ?? topic, first: list[0].pointer, last: list.at(-1).pointer })}>Put many again…<//>` : null}<${Button} main level="operate" onClick=${() => setIsPutting(true)}>Put…<//>`}>
    <${ErrorLine} error=${error ?? failed} />
    <div class="fields">${parts.current.length > 1 ? html`<${Field} label="Partition"><select value=${topic} onChange=${(event) => { led.current = undefined; go("messages", { topic: event.target.value }); }}>${parts.current.map((each) => html`<option value=${each.id}>${each.name}</option>`)}</select><//>` : null}
      <button type="button" aria-pressed=${!tailed && !found && (place ?? "newest") === "newest"} onClick=${() => show({ place: undefined })}>Newest</button><button type="button" aria-pressed=${place === "oldest"} onClick=${() => show({ place: "oldest" })}>Oldest</button>
      <button type="button" aria-pressed=${Boolean(tailed)} onClick=${() => (tailed ? setTailed(null) : tail())}>Tail</button>
      <${Field} label="From a time or pointer"><input value=${typed} placeholder="2026-11-24T12:00:00" onInput=${(event) => setTyped(event.target.value)} onChange=${(event) => { const given = event.target.value.trim(); show(given ? { place: "after", at: pointerOf(given) } : { place: undefined }); }} /><//>
      <${Field} label="Find"><input type="search" class="wide" placeholder=${KINDS.find(([each]) => each === wanted.kind)[2]} value=${wanted.text} onInput=${(event) => want({ text: event.target.value })} onKeyDown=${(event) => event.key === "Enter" && find({ ...wanted, text: event.target.value })} /><//>
      <${Field} label="as"><select value=${wanted.kind} onChange=${(event) => want({ kind: event.target.value })}>${KINDS.map(([each, words]) => html`<option value=${each} selected=${each === wanted.kind}>${words}</option>`)}</select><//>
      <button type="button" onClick=${() => find(wanted)}>Find</button>
      ${["jsonl", "parquet"].map((each) => html`<a href=${`/console/api/${path}/dump?as=${each}&after=${place === "after" ? at ?? 0 : 0}&limit=${DUMPED_MAX}`} download>Dump as ${each === "jsonl" ? "JSONL" : "Parquet"}</a>`)}</div>
    <section aria-label="Messages">${data && !tailed && !found ? html`<${Histogram} path=${path} turn=${data.newest} onPick=${(us) => show({ place: "after", at: us })} />` : null}
      ${marked.length ? html`<p class="fields">${marked.length} chosen ${marked.length === 2 ? html`<button type="button" onClick=${() => setCompared(marked)}>Compare</button>` : null}<${Button} level="operate" onClick=${putMarked}>Put again<//><button type="button" onClick=${() => choose(new Set())}>Choose none</button></p>` : null}
      ${tailed ? html`<p><${Badge} state=${tailed.later || isStale ? "warn" : "ok"}>${tailed.later ? "paused" : isStale ? "not of now" : "tailing"}<//> <button type="button" onClick=${() => setTailed({ ...tailed, ...(tailed.later ? { rows: [...tailed.rows, ...tailed.later].slice(-500), later: null } : { later: [] }) })}>${tailed.later ? "Go on" : "Pause"}</button>${tailed.skipped ? ` ${tailed.skipped} came too quickly to be shown.` : ""}</p><${ErrorLine} error=${tailed.error} />` : null}
      ${found ? html`<${ErrorLine} error=${found.error} />${found.failed ? html`<p class="error"><${Num} n=${found.failed} /> messages could not be judged: ${found.reason}</p>` : null}` : null}
      ${data || found || tailed ? html`<${Rows} rows=${list} onOpen=${opened} chosen=${chosen} choose=${choose} caption=${tailed ? "What is put from now on" : found ? `${found.rows.length} found` : `${rows.length} of ${data.total} messages`} />` : null}
      ${list.length || !(data || found || tailed) ? null : html`<${Empty}>${tailed ? "Nothing was put yet." : found ? "Nothing was found so far." : "There is no message."}<//>`}
      ${found && found.looked_until ? html`<div class="pager"><span>${found.is_end ? "All of the topic was looked at." : `It has looked up to ${timeText(found.looked_until)}.`}</span>${found.is_end ? null : html`<button type="button" onClick=${() => search(found.looked_until)}>Look on</button>`}</div>` : null}
      ${!tailed && !found && rows.length ? html`<div class="pager"><button type="button" disabled=${rows[0].pointer === data.oldest} onClick=${() => show({ place: "before", at: rows[0].pointer })}>Older</button><button type="button" disabled=${rows.at(-1).pointer === data.newest} onClick=${() => show({ place: "after", at: rows.at(-1).pointer })}>Newer</button></div>` : null}</section>
    ${compared ? html`<${Compare} topic=${topic} pointers=${compared} onClose=${() => setCompared(null)} />` : null}
    ${again?.topic === topic ? html`<${Again} path=${path} ...${again} onClose=${() => { setAgain(null); reload(); }} />` : null}
    ${open && (error || data?.id === topic) ? html`<${Opened} topic=${topic} pointer=${open} onClose=${() => setQuery({ open: undefined })} />` : null}
    ${isPutting ? html`<${Produce} topic=${topic} isEnveloped=${data?.envelope} onClose=${() => setIsPutting(false)} onDone=${reload} />` : null}<//>`;
}
