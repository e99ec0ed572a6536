import { html, useState, useGet, useQuery, Page, Field, Link, ErrorLine, Empty, timeText } from "../kit.js";

const MINUTES = [["1", "a minute"], ["10", "10 minutes"], ["60", "an hour"], ["1440", "a day"], ["100000", "10 weeks"]];

export default function Follow({ query }) {
  const [, setQuery] = useQuery();
  const [text, setText] = useState(query.text ?? "");
  const { data, error, isLoading, reload } = useGet(query.text ? "follow" : null, { text: query.text, at: query.at, minutes: query.minutes, filter: query.filter });
  const find = (event) => { event.preventDefault(); if (text === query.text) reload(); else setQuery({ text }); };
  return html`<${Page} title="Follow a key or a text through all topics"><form class="fields" onSubmit=${find}>
    <${Field} label="Key or text"><input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /><//>
    <${Field} label="Topics"><input value=${query.filter ?? ""} placeholder="all" onChange=${(event) => setQuery({ filter: event.target.value })} /><//>
    <${Field} label="Before and after"><select value=${query.minutes ?? "10"} onChange=${(event) => setQuery({ minutes: event.target.value })}>${MINUTES.map(([minutes, words]) => html`<option value=${minutes} selected=${minutes === (query.minutes ?? "10")}>${words}</option>`)}</select><//>
    <button class="main">Follow</button>${query.at ? html`<span class="quiet">around ${timeText(query.at)} <button type="button" onClick=${() => setQuery({ at: undefined })}>around now</button></span>` : null}</form><${ErrorLine} error=${error} />
    ${query.text && isLoading ? html`<p>Looking…</p>` : data && !error ? html`<section aria-label="Where it was"><p>${data.rows.length} messages in ${new Set(data.rows.map((row) => row.topic.id)).size} topics; ${data.topics_looked} of ${data.topics} topics were looked at, from ${timeText(data.after)} to ${timeText(data.last)}. ${data.is_whole ? "" : "There may be more: look at fewer topics, or at less time."}</p>
      ${data.rows.length ? html`<div class="scroll" tabindex="0" role="region" aria-label="Messages by time"><table><thead><tr><th>Time</th><th>Topic</th><th>Came from</th><th>Key</th><th>Message</th></tr></thead><tbody>${data.rows.map((row) => html`<tr key=${`${row.topic.id} ${row.pointer}`}><td class="line">${timeText(row.pointer)}</td><td><${Link} page="messages" query=${{ topic: row.topic.id, open: row.pointer }}>${row.topic.name}<//></td><td class="text">${row.origin}</td><td class="code">${row.key ?? ""}</td><td class="code text">${row.preview.slice(0, 300)}</td></tr>`)}</tbody></table></div>` : html`<${Empty}>No message holds it.<//>`}</section>`
    : html`<section aria-label="What this is"><${Empty}>A message that goes from topic to topic, by mappings or by programs, is shown here by time, with where it came from.<//></section>`}<//>`;
}
