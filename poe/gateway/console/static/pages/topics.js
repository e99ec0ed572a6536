import { html, useState, useGet, useQuery, useLive, send, go, say, Page, Table, Field, Button, Dialog, ErrorLine, Link, Bytes, Num, Rate, When } from "../kit.js";

const COLUMNS = [
  { key: "name", title: "Topic", sort: true, render: (row) => html`<${Link} page="topic" query=${{ topic: row.id }}>${row.name}<//>` },
  { key: "rate", title: "Put", sort: true, align: "number", render: (row) => html`<${Rate} n=${row.rates.messages_in ?? 0} />` },
  { key: "messages", title: "Messages", align: "number", render: (row) => html`<${Num} n=${row.messages} />` },
  { key: "bytes", title: "Size", align: "number", render: (row) => html`<${Bytes} n=${row.bytes} />` },
  { key: "segments", title: "Segments", align: "number", render: (row) => html`<${Num} n=${row.segments} />` },
  { key: "newest", title: "Newest", render: (row) => html`<${When} us=${row.newest} />` },
];

function Create({ onClose, onDone }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("1");
  const [error, setError] = useState(null);
  const act = (event) => {
    event.preventDefault();
    send("POST", "topics", { name, properties: { partitions: Number(partitions) } }).then(() => { say(`topic ${name} is created`); onDone(); onClose(); }, setError);
  };
  return html`<${Dialog} title="Create a topic" onClose=${onClose}><form onSubmit=${act}><${ErrorLine} error=${error} />
    <${Field} label="Name"><input autofocus required value=${name} onInput=${(event) => setName(event.target.value)} /><//>
    <${Field} label="Partitions"><input type="number" min="1" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} /><//>
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
