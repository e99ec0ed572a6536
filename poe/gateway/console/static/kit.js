// What all pages are made of. Text is always text: nothing here takes HTML from anywhere.
import { html, render, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback } from "./vendor/htm-preact.js";
export { html, render, useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback };

const API = "/console/api/";

export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    Object.assign(this, { status, code: error.code, name: error.name });
  }
}

// What is not answered at all, as where the laptop slept meanwhile, is given up: a page that waits asks for nothing new.
const GET_S = 60, SEND_S = 300;
export const LONG_S = 86400; // for what takes as long as reading all that there is

async function answer(method, path, body, limit_s) {
  const request = { method, headers: {}, signal: AbortSignal.timeout(limit_s * 1000) };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let reply, content;
  try {
    reply = await fetch(API + path, request);
    content = await reply.json().catch((error) => { if (error instanceof SyntaxError) return {}; throw error; });
  } catch (error) {
    const late = `the console has not answered within ${limit_s} s${method === "GET" ? "" : "; it may be done all the same"}`;
    throw new Refused(0, { name: "Away", message: error.name === "TimeoutError" ? late : "the console does not answer; is it still running?" });
  }
  if (reply.ok) return content;
  if (reply.status === 401 && path !== "login") dispatchEvent(new Event("poe-logged-out"));
  throw new Refused(reply.status, content.error ?? { name: "Error", message: `status ${reply.status}` });
}

export function get(path, params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return answer("GET", query ? `${path}?${query}` : path, undefined, GET_S);
}
// What is being done is not done a second time: a double click is one.
const underWay = new Map();
export function send(method, path, body, limit_s = SEND_S) {
  const key = JSON.stringify([method, path, body]);
  if (!underWay.has(key)) underWay.set(key, answer(method, path, body, limit_s).finally(() => underWay.delete(key)));
  return underWay.get(key);
}

// ---- where we are: the page in the path, what it shows in the query ---------------------------

const place = () => ({
  page: location.pathname.replace(/^\/console\/?/, "") || "overview",
  query: Object.fromEntries(new URLSearchParams(location.search)),
});
export const address = (page, query = {}) => {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `/console/${page}${text ? `?${text}` : ""}`;
};
// What an address names, as one part of a path: whoever has made a link may have put steps to elsewhere there.
export const part = (id = "") => id.replace(/[^\w.~%-]/gu, encodeURIComponent);
export function go(page, query, isReplacing = false) {
  history[isReplacing ? "replaceState" : "pushState"](null, "", address(page, query));
  dispatchEvent(new Event("poe-place"));
}
export function usePlace() {
  const [now, setNow] = useState(place);
  useEffect(() => {
    const look = () => setNow(place());
    addEventListener("popstate", look);
    addEventListener("poe-place", look);
    return () => { removeEventListener("popstate", look); removeEventListener("poe-place", look); };
  }, []);
  return now;
}
// What is answered late leads nobody back, or away, who has gone elsewhere meanwhile.
export function useQuery() {
  const { page, query } = usePlace();
  return [query, (patch) => { const now = place(); if (now.page === page) go(page, { ...now.query, ...patch }, true); }];
}
export function goFrom() {
  const here = location.href;
  return (page, query) => { if (location.href === here) go(page, query); };
}
export const Link = ({ page, query, children, ...rest }) => html`<a href=${address(page, query)} ...${rest} onClick=${(event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(page, query);
}}>${children}</a>`;

// ---- data: asked for, or live -----------------------------------------------------------------

export function useGet(path, params = {}) {
  const key = path === null ? null : JSON.stringify([path, params]);
  const [state, setState] = useState({ path: null });
  const [turn, setTurn] = useState(0);
  const asked = useRef(null);
  useEffect(() => {
    if (key === null) return undefined;
    const own = asked.current = { isDone: false, isAgain: false };
    const take = (next) => {
      if (asked.current !== own) return;
      own.isDone = true;
      setState((old) => ({ data: old.path === path ? old.data : undefined, ...next, path, key }));
      if (own.isAgain) setTurn((old) => old + 1);
    };
    get(path, params).then(
      (data) => take({ data, error: undefined }),
      (error) => take({ error }),
    );
    return () => { asked.current = null; };
  }, [key, turn]);
  // Who asks again while an answer is awaited gets that one, and then another: where answers take longer than states
  // come, none would ever be shown.
  const reload = () => { if (asked.current && !asked.current.isDone) asked.current.isAgain = true; else setTurn((old) => old + 1); };
  // What is known of another thing is not of this one, while that is awaited, and where it cannot be had.
  return { ...(state.path === path ? state : {}), isLoading: state.key !== key, reload };
}

// One stream for a tab, whatever it shows: browsers allow six connections to a host.
const live = { views: new Map(), source: null, timer: 0, quiet: 0, at: "" };
// The console sends something each 15 s. Of a way that was cut, as where a network was changed, no browser is told.
const QUIET_S = 45;
function heard() {
  clearTimeout(live.quiet);
  live.quiet = setTimeout(() => { for (const view of live.views.keys()) tellLive(view, { isStale: true }); connectLive(); }, QUIET_S * 1000);
}
function connectLive() {
  clearTimeout(live.timer);
  live.timer = setTimeout(() => {
    live.source?.close();
    live.source = null;
    clearTimeout(live.quiet);
    if (!live.views.size || document.hidden) return;
    const query = [...live.views.keys()].map((view) => `view=${encodeURIComponent(view)}`).join("&");
    const source = new EventSource(`${API}stream?${query}${live.at ? `&resume=${encodeURIComponent(live.at)}` : ""}`);
    live.source = source;
    heard();
    source.addEventListener("beat", heard);
    for (const view of live.views.keys()) {
      source.addEventListener(view, (event) => {
        heard();
        live.at = event.lastEventId || live.at; // where views of single things are, for a stream that is opened anew
        tellLive(view, { isStale: false, ...split(JSON.parse(event.data)) });
      });
    }
    // A tail says nothing when it goes on where it was.
    source.onopen = () => { for (const view of live.views.keys()) if (view.startsWith("tail:")) tellLive(view, { isStale: false }); };
    source.onerror = () => {
      for (const view of live.views.keys()) tellLive(view, { isStale: true });
      if (source.readyState === EventSource.CLOSED) {
        get("session").then((session) => session.level === "none" && dispatchEvent(new Event("poe-logged-out")), () => {});
        live.timer = setTimeout(connectLive, 2000);
      }
    };
  }, 20);
}
const split = (data) => (data && data.error && Object.keys(data).length === 1
  ? { error: new Refused(503, data.error), isStale: true } : { data, error: undefined });
const tellLive = (view, patch) => live.views.get(view)?.forEach((tell) => tell(patch));
addEventListener("visibilitychange", connectLive);

export function useLive(view, onState) {
  const [state, setState] = useState({});
  useEffect(() => {
    if (view === null) return undefined;
    const tell = (patch) => { onState?.(patch); setState((old) => ({ ...old, ...patch })); };
    const isNew = !live.views.has(view);
    if (isNew) live.views.set(view, new Set());
    live.views.get(view).add(tell);
    if (isNew || live.source === null) connectLive();
    return () => {
      const all = live.views.get(view);
      all.delete(tell);
      if (!all.size) {
        live.views.delete(view);
        const at = new URLSearchParams(live.at);
        at.delete(view);
        live.at = at.toString();
        connectLive();
      }
    };
  }, [view]);
  return state;
}

// ---- who looks, and how -----------------------------------------------------------------------

const LEVELS = ["none", "read", "operate", "destroy"];
export const session = { level: "none", user: null };
export const may = (level) => LEVELS.indexOf(session.level) >= LEVELS.indexOf(level);
export const isUtc = () => localStorage.getItem("poe-utc") === "1";

let announce = () => {};
export const setAnnouncer = (tell) => { announce = tell; };
export const say = (text) => announce(text);

export const shortcuts = new Map();
export function useKeys(keys, help = {}) {
  const held = useRef(keys);
  held.current = keys;
  useEffect(() => {
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest("input, select, textarea, dialog")) return;
      const act = held.current[event.key];
      if (act) { event.preventDefault(); act(event); }
    };
    for (const [key, text] of Object.entries(help)) shortcuts.set(key, text);
    addEventListener("keydown", onKey);
    return () => {
      removeEventListener("keydown", onKey);
      for (const key of Object.keys(help)) shortcuts.delete(key);
    };
  }, []);
}

// ---- elements ---------------------------------------------------------------------------------

export const Page = ({ title, actions, children }) => {
  useEffect(() => { document.title = `${title} · Poe`; }, [title]);
  return html`<main class="page" id="main"><header><h1>${title}</h1>${actions}</header>${children}</main>`;
};
export const Panel = ({ title, children }) => html`<section aria-label=${title}><h2>${title}</h2>${children}</section>`;
export const Field = ({ label, children }) => html`<label>${label}${children}</label>`;
export const Button = ({ level, danger, main, children, ...rest }) => (level && !may(level) ? null
  : html`<button type="button" class=${danger ? "danger" : main ? "main" : ""} ...${rest}>${children}</button>`);
const MARKS = { ok: "✓", warn: "!", bad: "✕", idle: "·" };
export const Badge = ({ state = "idle", children }) => html`<span class=${`badge ${state === "idle" ? "quiet" : state}`}>${MARKS[state]} ${children}</span>`;
export const ErrorLine = ({ error }) => (error ? html`<p class="error" role="alert"><strong>${error.name}</strong>: ${error.message}</p>` : null);
export const Empty = ({ children }) => html`<p class="quiet">${children}</p>`;

// JSON whose numbers stay as they are written: those of JavaScript have 53 bits. Older browsers lack what it takes.
export const parsed = (text) => JSON.parse(text, (key, value, at) => (typeof value === "number" && at?.source && JSON.rawJSON ? JSON.rawJSON(at.source) : value));

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export function bytesText(count) {
  let value = Number(count), unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}
export const Bytes = ({ n }) => html`<span title=${`${n} bytes`}>${n === undefined ? "–" : bytesText(n)}</span>`;
export const numberText = (n) => (n === undefined || n === null ? "–" : Number(n).toLocaleString("en", { maximumFractionDigits: 1 }));
export const Num = ({ n }) => html`<span>${numberText(n)}</span>`;
export const Rate = ({ n, unit }) => html`<span>${n === undefined ? "–" : unit === "bytes" ? `${bytesText(n)}/s` : `${numberText(n)}/s`}</span>`;
export function durationText(s) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) if (s >= size) return `${Math.floor(s / size)} ${unit}`;
  return `${s < 10 ? Number(s).toFixed(s < 1 ? 3 : 1) : Math.round(s)} s`;
}
export const Duration = ({ s }) => html`<span>${durationText(s)}</span>`;
export function timeText(us) {
  const date = new Date(Math.floor(Number(us) / 1000));
  if (Number.isNaN(date.getTime())) return String(us);
  const local = isUtc() ? date : new Date(date.getTime() - date.getTimezoneOffset() * 60000);
  return `${local.toISOString().slice(0, 23).replace("T", " ")}${isUtc() ? " UTC" : ""}`;
}
export const When = ({ us }) => {
  if (!us || us === "0") return html`<span class="quiet">never</span>`;
  const ago = (Date.now() * 1000 - Number(us)) / 1e6;
  return html`<span class="line">${timeText(us)} <span class="quiet">${ago >= 1 ? `${durationText(ago)} ago` : "now"}</span></span>`;
};

export function Table({ columns, rows, rowKey, total, onOpen, caption, empty, limit: own }) {
  const [query, setQuery] = useQuery();
  const body = useRef(null);
  const offset = Number(query.offset ?? 0), limit = own ?? Number(query.limit ?? 100);
  const sortBy = (key) => setQuery({ sort: key, order: query.sort === key && query.order !== "desc" ? "desc" : "asc", offset: undefined });
  const move = (step) => {
    const all = [...body.current.querySelectorAll("tr")];
    const next = all[Math.max(0, Math.min(all.length - 1, all.indexOf(document.activeElement) + step))];
    next?.focus();
  };
  useKeys(onOpen ? { j: () => move(1), k: () => move(-1) } : {}, onOpen ? { "j k": "next and previous row", Enter: "open the row" } : {});
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table><caption>${caption}</caption>
    <thead><tr>${columns.map((each) => html`<th scope="col" class=${each.align ?? ""} aria-sort=${query.sort === each.key ? (query.order === "desc" ? "descending" : "ascending") : undefined}>
      ${each.sort ? html`<button type="button" onClick=${() => sortBy(each.key)}>${each.title}${query.sort === each.key ? (query.order === "desc" ? " ↓" : " ↑") : ""}</button>` : each.title}</th>`)}</tr></thead>
    <tbody ref=${body}>${rows.map((row) => html`<tr key=${rowKey(row)} class=${onOpen ? "opens" : ""} tabindex=${onOpen ? 0 : undefined}
      onClick=${onOpen && ((event) => event.target.closest("a, button") || onOpen(row))}
      onKeyDown=${onOpen && ((event) => event.key === "Enter" && event.target.tagName === "TR" && onOpen(row))}>
      ${columns.map((each) => html`<td class=${each.align ?? ""}>${each.render ? each.render(row) : row[each.key]}</td>`)}</tr>`)}</tbody></table></div>
    ${rows.length ? null : html`<${Empty}>${empty ?? "There is nothing."}<//>`}
    ${total === undefined ? null : html`<div class="pager"><button type="button" disabled=${!offset} onClick=${() => setQuery({ offset: Math.max(0, offset - limit) || undefined })}>Previous</button>
      <span>${total ? `${numberText(offset + 1)} to ${numberText(Math.min(total, offset + limit))} of ${numberText(total)}` : "0 of 0"}</span>
      <button type="button" disabled=${offset + limit >= total} onClick=${() => setQuery({ offset: offset + limit })}>Next</button></div>`}`;
}

export function Dialog({ title, onClose, children }) {
  const own = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    own.current.showModal();
    return () => setTimeout(() => before.focus()); // a dialog that is removed, and not closed, leaves the focus nowhere
  }, []);
  return html`<dialog ref=${own} aria-label=${title} onClose=${onClose}><h2>${title}</h2>${children}</dialog>`;
}
export function Confirm({ title, text, type, action, onClose }) {
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const act = (event) => { event.preventDefault(); action(typed).then(onClose, setError); };
  return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${act}><p>${text}</p><${ErrorLine} error=${error} />
    ${type ? html`<${Field} label=${`Type ${type} to go on`}><input autofocus value=${typed} onInput=${(event) => setTyped(event.target.value)} /><//>` : null}
    <div class="fields"><button class="danger" disabled=${type && typed !== type}>${title}</button><button type="button" onClick=${onClose}>Cancel</button></div></form><//>`;
}

// A chart is drawn by the browser: themes and sizes are its style's business, and nothing is drawn anew.
const WIDE = 1000, HIGH = 180;
function ceiling(n) {
  const power = 10 ** Math.floor(Math.log10(n || 1));
  return [1, 2, 5, 10].find((each) => each * power >= n) * power;
}
function path(times, values, most) {
  const begin = times[0], span = times.at(-1) - begin || 1;
  let text = "", isPen = false;
  values.forEach((value, index) => {
    if (value === null || value === undefined) { isPen = false; return; }
    text += `${isPen ? "L" : "M"}${(((times[index] - begin) / span) * WIDE).toFixed(1)} ${(HIGH - (value / most) * HIGH).toFixed(1)}`;
    isPen = true;
  });
  return text;
}
export const Spark = ({ values, label }) => (values?.some(Boolean) ? html`<svg class="spark" role="img" aria-label=${label} viewBox=${`0 -8 ${WIDE} ${HIGH + 16}`} preserveAspectRatio="none"><path class="line0" d=${path(values.map((_, index) => index), values, Math.max(...values))} /></svg>` : html`<span class="quiet">–</span>`);

export function Chart({ times_s: times, series, caption, format = numberText }) {
  const names = Object.keys(series);
  const [at, setAt] = useState(null);
  const shown = at === null || at >= times.length ? times.length - 1 : at;
  const most = ceiling(Math.max(...names.flatMap((name) => series[name].map((each) => each ?? 0)), 0));
  const text = (value) => (value === null || value === undefined ? "–" : format(value));
  const point = (event) => {
    const { left, width } = event.currentTarget.getBoundingClientRect();
    const time = times[0] + ((event.clientX - left) / width) * (times.at(-1) - times[0]);
    setAt(times.reduce((best, each, index) => (Math.abs(each - time) < Math.abs(times[best] - time) ? index : best), 0));
  };
  const cursor = at === null ? null : ((times[shown] - times[0]) / (times.at(-1) - times[0] || 1)) * WIDE;
  return html`<figure><div class="chart" aria-hidden="true"><div class="ticks"><span>${format(most)}</span><span>${format(most / 2)}</span><span>0</span></div>
      <svg viewBox=${`0 0 ${WIDE} ${HIGH}`} preserveAspectRatio="none" onPointerMove=${point} onPointerLeave=${() => setAt(null)}>
        ${[0, 0.5, 1].map((part) => html`<path class="grid" d=${`M0 ${part * HIGH}H${WIDE}`} />`)}
        ${names.map((name, index) => html`<path class=${`line${index}`} d=${path(times, series[name], most)} />`)}
        ${cursor === null ? null : html`<path class="cursor" d=${`M${cursor} 0V${HIGH}`} />`}</svg>
      <div class="ends"><span>${timeText(times[0] * 1e6).slice(0, 19)}</span><span>${timeText(times.at(-1) * 1e6).slice(0, 19)}</span></div></div>
    <figcaption class="quiet">${caption}${at === null ? "" : ` at ${timeText(times[shown] * 1e6).slice(11, 19)}`}: ${names.map((name, index) => html`<span class=${`key${index}`}>${["line", "dashed", "dotted"][index]} ${name} ${text(series[name][shown])}</span> `)}</figcaption>
    <details><summary>As a table</summary><div class="scroll" tabindex="0" role="region" aria-label=${`${caption}, as a table`}><table><thead><tr><th>time</th>${names.map((name) => html`<th class="number">${name}</th>`)}</tr></thead>
    <tbody>${times.slice(-30).map((time, index) => html`<tr><td>${timeText(time * 1e6)}</td>${names.map((name) => html`<td class="number">${text(series[name].slice(-30)[index])}</td>`)}</tr>`)}</tbody></table></div></details></figure>`;
}
