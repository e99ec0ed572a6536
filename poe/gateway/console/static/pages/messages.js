import { html, useState, useEffect, useGet, useLive, useQuery, useKeys, get, send, go, say, Page, Link, Field, Button, Badge, Dialog, ErrorLine, Empty, Bytes, timeText } from "../kit.js";

const FORMS = ["auto", "text", "json", "hex", "msgpack", "envelope"];
const micros = (text) => { const time = Date.parse(text); return Number.isNaN(time) ? undefined : `${time}000`; };

function pretty(found, form) {
  if (found.form === "text" && (form === "json" || (form === "auto" && /^\s*[[{]/.test(found.text)))) {
    try { return JSON.stringify(JSON.parse(found.text), null, 2); } catch { return found.text; }
  }
  return found.text;
}

function Opened({ topic, pointer, onClose }) {
  const [form, setForm] = useState("auto");
  const { data, error } = useGet(`messages/${topic}/value`, { pointer, as: form });
  const [edited, setEdited] = useState(null);
  const [failed, setFailed] = useState(null);
  const again = () => send("POST", `messages/${topic}`, { value: edited, ...(data.key ? { key: data.key } : {}), ...(data.headers && Object.keys(data.headers).length ? { headers: data.headers } : {}) })
    .then((found) => { say(`put again at ${found.pointer}`); onClose(); }, setFailed);
  const text = data ? pretty(data, form) : "";
  return html`<${Dialog} title=${`Message ${pointer}`} onClose=${onClose}><div class="stack"><${ErrorLine} error=${error ?? failed} />
    ${data ? html`<div>${timeText(pointer)}, <${Bytes} n=${data.bytes} />${data.is_cut ? " (the first 1 MiB is shown)" : ""}${data.is_tombstone ? ", a tombstone" : ""}</div>
      ${data.error ? html`<p class="error">${data.error}</p>` : null}
      ${data.key !== undefined ? html`<div>key <code>${data.key ?? "none"}</code>${Object.entries(data.headers ?? {}).map(([name, value]) => html`, ${name} <code>${value}</code>`)}</div>` : null}
      <div class="fields"><${Field} label="Shown as"><select value=${form} onChange=${(event) => setForm(event.target.value)}>${FORMS.map((each) => html`<option selected=${each === form}>${each}</option>`)}</select><//>
        <button type="button" onClick=${() => navigator.clipboard.writeText(text).then(() => say("copied"))}>Copy</button>
        <a href=${`/console/api/messages/${topic}/raw?pointer=${pointer}`} download>Download</a>
        ${edited === null && !data.is_cut && data.form === "text" ? html`<${Button} level="operate" onClick=${() => setEdited(data.text)}>Put again…<//>` : null}</div>
      ${edited === null ? html`<pre tabindex="0">${text}</pre>` : html`<${Field} label="Value"><textarea rows="10" value=${edited} onInput=${(event) => setEdited(event.target.value)} /><//><div class="fields"><button type="button" class="main" onClick=${again}>Put</button></div>`}` : null}
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

function Rows({ rows, onOpen, caption }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table><caption>${caption}</caption><thead><tr><th>Time and pointer</th><th>Key</th><th class="number">Size</th><th>Message</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.pointer} class="opens message" tabindex="0" onClick=${() => onOpen(row.pointer)} onKeyDown=${(event) => event.key === "Enter" && onOpen(row.pointer)}>
      <td class="line">${timeText(row.pointer)}<br /><small class="quiet">${row.pointer}</small></td><td class="code">${row.key ?? ""}</td><td class="number"><${Bytes} n=${row.bytes} /></td><td class="code"><div class="line">${row.form === "hex" ? html`<span class="quiet">hex</span> ` : null}${row.preview}</div></td></tr>`)}</tbody></table></div>`;
}

export default function Messages({ query }) {
  const [, setQuery] = useQuery();
  const { topic = "", place, at, text, kind, open } = query;
  const path = `messages/${topic}`;
  const { data, error, reload } = useGet(path, { place, at });
  const [found, setFound] = useState(null);
  const [tailed, setTailed] = useState(null);
  const [isPutting, setIsPutting] = useState(false);
  const [wanted, setWanted] = useState({ text: text ?? "", kind: kind ?? "text" });
  useLive(tailed && !tailed.isPaused ? `tail:${topic}` : null, ({ data: more, error: failed }) => setTailed((old) => old && (more
    ? { ...old, rows: [...old.rows, ...more.rows].slice(-500), skipped: old.skipped + more.skipped, error: undefined } : { ...old, error: failed })));
  const search = (after) => get(`${path}/search`, { text, kind, after }).then(
    (more) => setFound((old) => ({ ...more, rows: [...(after ? old.rows : []), ...more.rows] })), (failed) => setFound({ rows: [], is_end: true, error: failed }));
  useEffect(() => { setFound(null); if (text) search(); }, [topic, text, kind]);
  const show = (patch) => { setTailed(null); setQuery({ text: undefined, kind: undefined, at: undefined, ...patch }); };
  const opened = (pointer) => setQuery({ open: pointer });
  const step = (by) => { const all = [...document.querySelectorAll("tr.message")]; all[Math.max(0, Math.min(all.length - 1, all.indexOf(document.activeElement) + by))]?.focus(); };
  const tail = () => { setFound(null); setTailed({ rows: [], skipped: 0, isPaused: false }); };
  useKeys({ j: () => step(1), k: () => step(-1), t: () => (tailed ? setTailed(null) : tail()) }, { "j k": "next and previous message", Enter: "open the message", t: "tail, and back" });
  const rows = data?.rows ?? [];
  const list = tailed ? tailed.rows : found ? found.rows : rows;
  return html`<${Page} title=${data?.name ?? "Messages"} actions=${html`<${Link} page="topic" query=${{ topic }}>Topic<//><${Button} main level="operate" onClick=${() => setIsPutting(true)}>Put…<//>`}>
    <${ErrorLine} error=${error} />
    <div class="fields">${data && data.partitions.length > 1 ? html`<${Field} label="Partition"><select value=${topic} onChange=${(event) => go("messages", { topic: event.target.value })}>${data.partitions.map((each) => html`<option value=${each.id}>${each.name}</option>`)}</select><//>` : null}
      <button type="button" aria-pressed=${!tailed && !found && (place ?? "newest") === "newest"} onClick=${() => show({ place: undefined })}>Newest</button><button type="button" aria-pressed=${place === "oldest"} onClick=${() => show({ place: "oldest" })}>Oldest</button>
      <button type="button" aria-pressed=${Boolean(tailed)} onClick=${() => (tailed ? setTailed(null) : tail())}>Tail</button>
      <${Field} label="From a time or pointer"><input value=${place === "after" ? at ?? "" : ""} placeholder="2026-11-24T12:00:00" onChange=${(event) => { const given = event.target.value.trim(); show({ place: "after", at: /^\d+$/.test(given) ? given : micros(given) }); }} /><//>
      <${Field} label="Find"><input type="search" value=${wanted.text} onInput=${(event) => setWanted({ ...wanted, text: event.target.value })} onKeyDown=${(event) => event.key === "Enter" && setQuery({ ...wanted, text: event.target.value })} /><//>
      <${Field} label="as"><select value=${wanted.kind} onChange=${(event) => setWanted({ ...wanted, kind: event.target.value })}>${["text", "regex"].map((each) => html`<option selected=${each === wanted.kind}>${each}</option>`)}</select><//>
      <button type="button" onClick=${() => setQuery({ ...wanted })}>Find</button>
      ${["jsonl", "parquet"].map((each) => html`<a href=${`/console/api/${path}/dump?as=${each}&after=${place === "after" ? at ?? 0 : 0}`} download>Dump as ${each === "jsonl" ? "JSONL" : "Parquet"}</a>`)}</div>
    <section aria-label="Messages">
      ${tailed ? html`<p><${Badge} state=${tailed.isPaused ? "warn" : "ok"}>${tailed.isPaused ? "paused" : "tailing"}<//> <button type="button" onClick=${() => setTailed({ ...tailed, isPaused: !tailed.isPaused })}>${tailed.isPaused ? "Go on" : "Pause"}</button>${tailed.skipped ? ` ${tailed.skipped} came too quickly to be shown.` : ""}</p><${ErrorLine} error=${tailed.error} />` : null}
      ${found ? html`<${ErrorLine} error=${found.error} />` : null}
      ${data || found ? html`<${Rows} rows=${list} onOpen=${opened} caption=${tailed ? "What is put from now on" : found ? `${found.rows.length} found` : `${rows.length} of ${data.total} messages`} />` : null}
      ${list.length ? null : html`<${Empty}>${tailed ? "Nothing was put yet." : found ? "Nothing was found so far." : "There is no message."}<//>`}
      ${found && found.looked_until ? html`<div class="pager"><span>${found.is_end ? "All of the topic was looked at." : `It has looked up to ${timeText(found.looked_until)}.`}</span>${found.is_end ? null : html`<button type="button" onClick=${() => search(found.looked_until)}>Look on</button>`}</div>` : null}
      ${!tailed && !found && rows.length ? html`<div class="pager"><button type="button" disabled=${rows[0].pointer === data.oldest} onClick=${() => show({ place: "before", at: rows[0].pointer })}>Older</button><button type="button" disabled=${rows.at(-1).pointer === data.newest} onClick=${() => show({ place: "after", at: rows.at(-1).pointer })}>Newer</button></div>` : null}</section>
    ${open ? html`<${Opened} topic=${topic} pointer=${open} onClose=${() => setQuery({ open: undefined })} />` : null}
    ${isPutting ? html`<${Produce} topic=${topic} isEnveloped=${data?.envelope} onClose=${() => setIsPutting(false)} onDone=${reload} />` : null}<//>`;
}
