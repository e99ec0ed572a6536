import { html, useState, useGet, useQuery, useLive, send, go, say, Page, Table, Field, Button, Dialog, ErrorLine, Link, Badge, Bytes, Num, Rate, Spark, When } from "../kit.js";

const QUIET_S = 600;
const Newest = ({ us }) => html`<${When} us=${us} />${us !== "0" && Date.now() / 1000 - Number(us) / 1e6 > QUIET_S ? html` <${Badge}>quiet<//>` : null}`;
const COLUMNS = [
  { key: "name", title: "Topic", sort: true, render: (row) => html`<${Link} page="topic" query=${{ topic: row.id }}>${row.name}<//>${row.error ? html` <${Badge} state="bad">${row.error}<//>` : null}` },
  { key: "rate", title: "Put", sort: true, align: "number", render: (row) => html`<${Rate} n=${row.rates.messages_in ?? 0} />` },
  { key: "spark", title: "5 min", render: (row) => html`<${Spark} values=${row.spark} label=${`puts onto ${row.name} in the last minutes`} />` },
  { key: "messages", title: "Messages", align: "number", render: (row) => html`<${Num} n=${row.messages} />` },
  { key: "bytes", title: "Size", align: "number", render: (row) => html`<${Bytes} n=${row.bytes} />` },
  { key: "segments", title: "Segments", align: "number", render: (row) => html`<span title="written to, read, hibernating">${row.roles || row.segments}</span>` },
  { key: "ack", title: "Ack", render: (row) => row.ack ?? html`<span class="quiet">node's</span>` },
  { key: "newest", title: "Newest", render: (row) => html`<${Newest} us=${row.newest} />` },
  { key: "groups", title: "Groups, behind by", render: (row) => (row.groups.length ? row.groups.slice(0, 3).map((each, index) => html`${index ? ", " : ""}<${Link} page="group" query=${{ group: each.id }}>${each.name}<//> <${Num} n=${each.messages} />`) : html`<span class="quiet">–</span>`) },
];

function Create({ onClose, onDone }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("1");
  const [more, setMore] = useState({ envelope: false, ack: "", max_age: "" });
  const [error, setError] = useState(null);
  const act = (event) => {
    event.preventDefault();
    send("POST", "topics", { name, properties: { partitions: Number(partitions), ...(more.envelope ? { envelope: true } : {}), ...(more.ack ? { ack: more.ack } : {}), ...(more.max_age ? { max_age: Number(more.max_age) } : {}) } }).then(() => { say(`topic ${name} is created`); onDone(); onClose(); }, setError);
  };
  return html`<${Dialog} title="Create a topic" onClose=${onClose}><form onSubmit=${act}><${ErrorLine} error=${error} />
    <${Field} label="Name"><input autofocus required value=${name} onInput=${(event) => setName(event.target.value)} /><//>
    <${Field} label="Partitions"><input type="number" min="1" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} /><//>
    <label><span><input type="checkbox" checked=${more.envelope} onChange=${(event) => setMore({ ...more, envelope: event.target.checked })} /> messages have keys and headers</span></label>
    <${Field} label="Acknowledged when"><select value=${more.ack} onChange=${(event) => setMore({ ...more, ack: event.target.value })}><option value="">as the node has it</option><option value="memory">in memory</option><option value="flushed">handed to the system</option><option value="fsync">on the disk</option></select><//>
    <${Field} label="Kept for so many seconds (empty: as the node has it)"><input type="number" min="1" value=${more.max_age} onInput=${(event) => setMore({ ...more, max_age: event.target.value })} /><//>
    <div class="fields"><button class="main">Create</button><button type="button" onClick=${onClose}>Cancel</button></div></form><//>`;
}

export default function Topics({ query }) {
  const [, setQuery] = useQuery();
  const [isMaking, setIsMaking] = useState(false);
  const { filter, sort, order, offset, limit } = query;
  const { data, error, reload } = useGet("topics", { filter, sort, order, offset, limit });
  useLive("overview", reload);
  return html`<${Page} title="Topics" actions=${html`<${Button} main level="operate" onClick=${() => setIsMaking(true)}>Create…<//>`}>
    <div class="fields"><${Field} label="Filter"><input type="search" value=${filter ?? ""} onInput=${(event) => setQuery({ filter: event.target.value, offset: undefined })} /><//></div>
    <${ErrorLine} error=${error} />
    ${data ? html`<section aria-label="All topics"><${Table} columns=${COLUMNS} rows=${data.rows} rowKey=${(row) => row.id} total=${data.total} caption="Topics" onOpen=${(row) => go("topic", { topic: row.id })} empty=${filter ? "No topic's name holds that." : "There is no topic yet; poe put makes one."} /></section>` : error ? null : html`<p>Loading…</p>`}
    ${isMaking ? html`<${Create} onClose=${() => setIsMaking(false)} onDone=${reload} />` : null}
  <//>`;
}
