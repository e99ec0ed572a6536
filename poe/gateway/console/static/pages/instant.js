import { html, useGet, useQuery, Page, Field, Table, Link, ErrorLine, timeText } from "../kit.js";

const COLUMNS = [
  { key: "name", title: "Topic", render: (row) => html`<${Link} page="messages" query=${{ topic: row.partition, place: "after", at: row.last ? String(BigInt(row.last.pointer) - 1n) : undefined }}>${row.name}<//>` },
  { key: "time", title: "Its last message then", render: (row) => (row.last ? timeText(row.last.pointer) : html`<span class="quiet">${row.error ?? "none yet"}</span>`) },
  { key: "preview", title: "Message", render: (row) => html`<div class="code line">${row.last?.preview ?? ""}</div>` },
];

const LIMIT = 50;

export default function Instant({ query }) {
  const [, setQuery] = useQuery();
  const { data, error, reload } = useGet("instant", { time_us: query.time_us, filter: query.filter, offset: query.offset, limit: LIMIT });
  const given = Number(query.time_us || (data?.time_us ?? NaN)), now = given >= 0 && given <= 8.64e18 ? given : Date.now() * 1000;
  const at = (us) => Number.isNaN(us) || setQuery({ time_us: String(Math.round(us)), offset: undefined });
  const shown = new Date(now / 1000).toISOString().slice(0, 23);
  return html`<${Page} title="All topics at one time"><div class="fields">
    <${Field} label="Time (UTC)"><input type="datetime-local" step="0.001" value=${shown} onChange=${(event) => at(Date.parse(`${event.target.value}Z`) * 1000)} /><//>
    <${Field} label="The hour before now"><input type="range" min="-3600" max="0" step="1" value=${Math.max(-3600, Math.round(now / 1e6 - Date.now() / 1000))} onChange=${(event) => at((Date.now() + Number(event.target.value) * 1000) * 1000)} /><//>
    <button type="button" onClick=${() => at(now - 1e6)}>1 s earlier</button><button type="button" onClick=${() => at(now + 1e6)}>1 s later</button><button type="button" onClick=${() => { reload(); setQuery({ time_us: undefined }); }}>Now</button>
    <${Field} label="Filter"><input type="search" value=${query.filter ?? ""} onInput=${(event) => setQuery({ filter: event.target.value, offset: undefined })} /><//></div>
    <${ErrorLine} error=${error} />${data ? html`<section aria-label="Topics then"><${Table} columns=${COLUMNS} rows=${data.rows} rowKey=${(row) => row.id} total=${data.total} limit=${LIMIT} caption=${`Topics at ${timeText(data.time_us)}`} /></section>` : null}<//>`;
}
