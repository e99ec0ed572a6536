import { html, useGet, useLive, useQuery, go, Page, Table, Field, Link, ErrorLine, Num, Duration } from "../kit.js";

const COLUMNS = [
  { key: "name", title: "Group", sort: true, render: (row) => html`<${Link} page="group" query=${{ group: row.id }}>${row.name}<//>` },
  { key: "mode", title: "Mode" },
  { key: "topics", title: "Topics", render: (row) => row.topics.map((each, index) => html`${index ? ", " : ""}<${Link} page="topic" query=${{ topic: each.id }}>${each.name}<//>`) },
  { key: "lag", title: "Behind by", align: "number", render: (row) => (row.error ? html`<span class="quiet" title=${row.error}>unknown</span>` : html`<${Num} n=${row.lag} /> messages`) },
  { key: "lag_s", title: "and", align: "number", render: (row) => (row.error ? "" : html`<${Duration} s=${row.lag_s} />`) },
];

export default function Groups({ query }) {
  const [, setQuery] = useQuery();
  const { filter, order, sort, offset } = query;
  const { data, error, reload } = useGet("groups", { filter, order, sort, offset });
  useLive("overview", reload);
  return html`<${Page} title="Groups"><${ErrorLine} error=${error} /><div class="fields"><${Field} label="Filter"><input type="search" value=${filter ?? ""} onInput=${(event) => setQuery({ filter: event.target.value, offset: undefined })} /><//></div>${data ? html`<section aria-label="Groups"><${Table} columns=${COLUMNS} rows=${data.rows} total=${data.total} rowKey=${(row) => row.id} caption="Groups" onOpen=${(row) => go("group", { group: row.id })} empty="There is no group yet; a Consumer with group=… or a Queue makes one." /></section>` : null}<//>`;
}
