import { html, useGet, useLive, go, Page, Table, Link, ErrorLine, Num, Duration } from "../kit.js";

const COLUMNS = [
  { key: "name", title: "Group", render: (row) => html`<${Link} page="group" query=${{ group: row.id }}>${row.name}<//>` },
  { key: "mode", title: "Mode" },
  { key: "topics", title: "Topics", render: (row) => row.topics.map((each, index) => html`${index ? ", " : ""}<${Link} page="topic" query=${{ topic: each.id }}>${each.name}<//>`) },
  { key: "lag", title: "Behind by", align: "number", render: (row) => html`<${Num} n=${row.lag} /> messages` },
  { key: "lag_s", title: "and", align: "number", render: (row) => html`<${Duration} s=${row.lag_s} />` },
];

export default function Groups() {
  const { data, error, reload } = useGet("groups");
  useLive("overview", reload);
  return html`<${Page} title="Groups"><${ErrorLine} error=${error} />${data ? html`<section aria-label="Groups"><${Table} columns=${COLUMNS} rows=${data.rows} rowKey=${(row) => row.id} caption="Groups" onOpen=${(row) => go("group", { group: row.id })} empty="There is no group yet; a Consumer with group=… or a Queue makes one." /></section>` : null}<//>`;
}
