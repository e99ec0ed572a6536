import { html, useState, useEffect, useGet, useLive, send, goFrom, part, say, Link, Page, Panel, Button, Confirm, ErrorLine, Empty, Bytes, Num, Rate, Duration, When, Chart } from "../kit.js";

// Each by its own newest message: that stays, and the segment that holds it.
const trim = async (partitions) => {
  for (const each of partitions) if (each.messages) await send("POST", `topics/${each.id}/trim`, { pointer: String(BigInt(each.newest) - 1n) });
};

export default function Topic({ query }) {
  const path = `topics/${part(query.topic)}`;
  const { data, error, reload } = useGet(path);
  const past = useGet(`${path}/history`, { range: query.range });
  const [asked, setAsked] = useState(null);
  useEffect(() => setAsked(null), [path]); // of another one nothing was asked
  useLive("overview", () => { reload(); past.reload(); });
  if (!data) return html`<${Page} title="Topic"><${ErrorLine} error=${error} />${error ? null : html`<p>Loading…</p>`}<//>`;
  const actions = html`<${Link} page="messages" query=${{ topic: data.partitions[0]?.id ?? data.id }}>Messages<//><${Button} danger level="destroy" onClick=${() => setAsked("trim")}>Trim…<//><${Button} danger level="destroy" onClick=${() => setAsked("delete")}>Delete…<//>`;
  return html`<${Page} title=${data.name} actions=${actions}><${ErrorLine} error=${error} />
    ${data.error ? html`<p class="error">${data.error}</p>` : null}
    <dl class="cards"><div><dt>Messages</dt><dd><${Num} n=${data.messages} /></dd></div><div><dt>Size</dt><dd><${Bytes} n=${data.bytes} /></dd></div>
      <div><dt>Put</dt><dd><${Rate} n=${data.rates.messages_in ?? 0} /></dd></div><div><dt>Read</dt><dd><${Rate} n=${data.rates.messages_out ?? 0} /></dd></div>
      <div><dt>Newest</dt><dd><${When} us=${data.newest} /></dd></div><div><dt>Created</dt><dd><${When} us=${data.created_us} /></dd></div></dl>
    <${Panel} title="Messages in a second">${past.data?.times_s.length ? html`<${Chart} times_s=${past.data.times_s} series=${{ put: past.data.series.messages_in, read: past.data.series.messages_out }} caption="Messages in a second" />` : html`<${Empty}>A topic's history begins when somebody looks at it; one sample is taken every 5 s.<//>`}<//>
    <${Panel} title="Partitions"><div class="scroll" tabindex="0" role="region" aria-label="Partitions"><table><thead><tr><th>Partition</th><th class="number">Messages</th><th class="number">Size</th><th class="number">Segments</th><th>Oldest</th><th>Newest</th></tr></thead>
      <tbody>${data.partitions.map((each) => html`<tr key=${each.id}><td>${each.name}</td><td class="number"><${Num} n=${each.messages} /></td><td class="number"><${Bytes} n=${each.bytes} /></td><td class="number"><${Num} n=${each.segments} /></td><td><${When} us=${each.oldest} /></td><td><${When} us=${each.newest} /></td></tr>`)}</tbody></table></div><//>
    <${Panel} title="Groups that read it">${data.groups.length ? html`<table><thead><tr><th>Group</th><th class="number">Behind by</th><th class="number">and</th></tr></thead><tbody>${data.groups.map((each) => html`<tr key=${each.id}><td><${Link} page="group" query=${{ group: each.id }}>${each.name}<//></td><td class="number"><${Num} n=${each.messages} /></td><td class="number"><${Duration} s=${each.seconds} /></td></tr>`)}</tbody></table>` : html`<${Empty}>None.<//>`}<//>
    <${Panel} title="Producers that number their puts">${data.producers.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Producers"><table><thead><tr>${Object.keys(data.producers[0]).map((name) => html`<th>${name.replaceAll("_", " ")}</th>`)}</tr></thead><tbody>${data.producers.map((row) => html`<tr>${Object.entries(row).map(([name, value]) => html`<td class=${name === "producer" ? "text code" : ""}>${name === "pointer" ? html`<${When} us=${value} />` : String(value)}</td>`)}</tr>`)}</tbody></table></div>` : html`<${Empty}>None; a Producer, or a mapping, is one.<//>`}<//>
    <${Panel} title=${`Segments (${data.segments_total})`}><div class="scroll" tabindex="0" role="region" aria-label="Segments"><table><thead><tr><th>Role</th><th class="number">Messages</th><th class="number">Size</th><th>Oldest</th><th>Newest</th></tr></thead>
      <tbody>${data.segments.map((each) => html`<tr><td>${{ w: "writer", r: "reader", h: "hibernating" }[each.role] ?? each.role}</td><td class="number"><${Num} n=${each.messages} /></td><td class="number"><${Bytes} n=${each.bytes} /></td><td><${When} us=${each.oldest} /></td><td><${When} us=${each.newest} /></td></tr>`)}</tbody></table></div><//>
    <${Panel} title="Properties"><table><tbody>${Object.entries(data.properties).map(([name, value]) => html`<tr><td>${name}</td><td>${value === null ? html`<span class="quiet">the node's</span>` : JSON.stringify(value)}</td></tr>`)}</tbody></table><//>
    ${asked === "delete" ? html`<${Confirm} title="Delete" type=${data.name} text="All messages of this topic will be gone." onClose=${() => setAsked(null)}
      action=${(name) => { const next = goFrom(); return send("DELETE", path, { name }).then(() => { say(`topic ${data.name} is deleted`); next("topics"); }); }} />` : null}
    ${asked === "trim" ? html`<${Confirm} title="Trim" type=${data.name} text="Of each partition, whole segments whose messages are all older than its newest one are removed." onClose=${() => setAsked(null)}
      action=${() => trim(data.partitions).then(() => { say("the topic is trimmed"); reload(); })} />` : null}
  <//>`;
}
