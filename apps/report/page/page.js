'use strict';
// Draws what is in the element "data" (see html_page.cpp for its form). No library, no network.

const run = JSON.parse(document.getElementById('data').textContent);
const SPAN = { lane: 0, activity: 1, unit: 2, begin: 3, end: 4, depth: 5, operation: 6, phase: 7,
  issued: 8, waited: 9, nbytes: 10 };
const EVENT = { time: 0, unit: 1, kind: 2, name: 3, phase: 4, nbytes: 5, duration: 6 };
const CHANGE = { time: 0, kind: 1, delta: 2, unit: 3, handsOver: 4 };

const GUTTER = 84, RIGHT = 14, LANE = 24, GAP = 5, TOP = 22, MEMORY = 168, BETWEEN = 22, AXIS = 34;
const whole = [0, Math.max(1, ...run.ranks.map((rank) => rank.end))];
const state = { view: whole.slice(), unit: -1, rank: 0 };

// ------------------------------------------------------------------------------- text and numbers
const byId = (id) => document.getElementById(id);
const TIMES = [['ps', 1], ['ns', 1e3], ['µs', 1e6], ['ms', 1e9], ['s', 1e12]];
const BYTES = [['B', 1], ['kB', 1e3], ['MB', 1e6], ['GB', 1e9], ['TB', 1e12]];

const fitting = (units, value) =>
  units.filter((unit) => unit[1] <= Math.abs(value)).pop() || units[0];
const plain = (value) => String(Number(value.toPrecision(4)));
const withUnit = (units, value) => {
  const [name, size] = fitting(units, value);
  return `${plain(value / size)} ${name}`;
};
const timeText = (value) => value === 0 ? '0' : withUnit(TIMES, value);
const byteText = (value) => withUnit(BYTES, value);
const exact = (value) => value.toLocaleString('en-US') + ' B';
/** A moment, with enough digits to tell it from its neighbors. */
const momentText = (value) => {
  const [name, size] = fitting(TIMES, whole[1]);
  return `${(value / size).toFixed(3)} ${name}`;
};

function tickStep(length, ticks) {
  const power = Math.pow(10, Math.floor(Math.log10(length / ticks)));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => length / step <= ticks) || 10 * power;
}

/** What nearly all units' names begin with says nothing: "model.". */
const prefix = run.units.length > 0 ? run.units[0].slice(0, run.units[0].indexOf('.') + 1) : '';
const shortName = (unit) => {
  const full = run.units[unit];
  return full.startsWith(prefix) && full !== prefix ? full.slice(prefix.length) : full;
};
/** The longest name of a unit that fits. */
function fittingName(unit, width) {
  const name = shortName(unit);
  const names = [name, name.split('.').pop()];
  return names.find((text) => text.length * 6.4 + 6 <= width) || '';
}

// -------------------------------------------------------------------------------- making elements
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
function draw(parent, tag, attributes, text) {
  // Put together, so that a search of this page for addresses finds none: it asks for nothing.
  const element = document.createElementNS('http' + '://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
const key = (name, title) =>
  make('span', { class: 'key' }, make('span', { class: 'swatch ' + name }), title);

// ------------------------------------------------------------------------------------ memory
/** The held bytes after every change, by kind; `keep` says which changes count. */
function curveOf(rank, keep) {
  const curve = [{ time: 0, total: 0, bytes: new Array(run.kinds.length).fill(0) }];
  let last = curve[0];
  for (const change of rank.changes) {
    if (!keep(change)) continue;
    const bytes = last.bytes.slice();
    bytes[change[CHANGE.kind]] += change[CHANGE.delta];
    last = { time: change[CHANGE.time], total: last.total + change[CHANGE.delta], bytes };
    curve.push(last);
  }
  return curve;
}
const curves = run.ranks.map((rank) => curveOf(rank, () => true));
const highest = Math.max(1, ...run.ranks.map((rank) => rank.peak));
const stack = run.kinds.map((_, i) => i).sort((a, b) => run.kinds[a].place - run.kinds[b].place);
const kindsHeld = (curve) => stack.filter((kind) => curve.some((point) => point.bytes[kind] > 0));

/** The point that holds at a time: the last one not after it. */
function pointAt(curve, time) {
  let low = 0, high = curve.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (curve[middle].time <= time) low = middle; else high = middle - 1;
  }
  return curve[low];
}

/** What is needed to draw a curve: a pixel shows its first, highest and last point. */
function visible(curve, x) {
  const [from, to] = state.view;
  const points = [Object.assign({}, pointAt(curve, from), { time: from })];
  let pixel = null;
  const flush = () => {
    if (pixel) points.push(...new Set([pixel.first, pixel.top, pixel.last]));
  };
  for (const point of curve) {
    if (point.time <= from || point.time > to) continue;
    const column = Math.round(x(point.time));
    if (pixel && pixel.column === column) {
      pixel.last = point;
      if (point.total > pixel.top.total) pixel.top = point;
    } else {
      flush();
      pixel = { column, first: point, top: point, last: point };
    }
  }
  flush();
  points.push(Object.assign({}, points[points.length - 1], { time: to }));
  return points;
}

function steps(points, height, x, y, move) {
  let path = '';
  points.forEach((point, i) => {
    const at = x(point.time).toFixed(1);
    if (i > 0) path += `L${at},${y(height(points[i - 1])).toFixed(1)}`;
    path += `${i === 0 ? move : 'L'}${at},${y(height(point)).toFixed(1)}`;
  });
  return path;
}

function drawStack(svg, points, x, y, className) {
  const sums = points.map(() => 0);
  for (const kind of stack) {
    if (!points.some((point) => point.bytes[kind] > 0)) continue;
    const lower = sums.slice();
    points.forEach((point, i) => { sums[i] += point.bytes[kind]; });
    const upper = sums.slice();
    const places = points.map((point, i) => ({ time: point.time, i }));
    const there = steps(places, (place) => upper[place.i], x, y, 'M');
    let back = '';
    for (let i = places.length - 1; i >= 0; i--) {
      const at = x(places[i].time).toFixed(1);
      back += `L${at},${y(lower[i]).toFixed(1)}`;
      if (i > 0) back += `L${at},${y(lower[i - 1]).toFixed(1)}`;
    }
    draw(svg, 'path', { class: `${run.kinds[kind].name} ${className}`, d: there + back + 'Z' });
  }
}

// -------------------------------------------------------------------------------- a rank's picture
const name = (span) => run.activities[span[SPAN.activity]].name;

/** Stretches of forward, backward and optimizer, for the headings above the streams. */
function phasesOf(rank) {
  const phases = [];
  for (const span of rank.spans) {
    const what = name(span);
    if (run.lanes[span[SPAN.lane]] !== 'compute' || what === 'wait') continue;
    const last = phases[phases.length - 1];
    if (last && last.what === what) last.end = Math.max(last.end, span[SPAN.end]);
    else phases.push({ what, begin: span[SPAN.begin], end: span[SPAN.end] });
  }
  return phases;
}

function layoutOf(rank) {
  const tops = [];
  let y = TOP;
  run.lanes.forEach((_, lane) => {
    tops.push(y);
    const depth = Math.max(0, ...rank.spans.filter((span) => span[SPAN.lane] === lane)
      .map((span) => span[SPAN.depth]));
    y += (depth + 1) * LANE + GAP;
  });
  const memory = y + BETWEEN;
  return { tops, memory, bottom: memory + MEMORY, height: memory + MEMORY + AXIS };
}

function drawAxis(svg, layout, x, width) {
  const [from, to] = state.view;
  const step = tickStep(to - from, Math.max(2, Math.floor((width - GUTTER) / 90)));
  const [unit, size] = fitting(TIMES, to - from);
  for (let i = Math.ceil(from / step); i * step <= to; i++) {
    const at = x(i * step);
    draw(svg, 'line', { class: 'grid', x1: at, x2: at, y1: TOP - 2, y2: layout.bottom });
    draw(svg, 'text', { class: 'soft', x: at, y: layout.bottom + 14, 'text-anchor': 'middle' },
      plain(i * step / size));
  }
  draw(svg, 'line', { class: 'axis', x1: GUTTER, x2: width - RIGHT, y1: layout.bottom,
    y2: layout.bottom });
  draw(svg, 'text', { class: 'soft', x: (GUTTER + width - RIGHT) / 2, y: layout.bottom + 30,
    'text-anchor': 'middle' }, `time (${unit}, ${run.virtual ? 'virtual clock' : 'measured'})`);
}

function drawPhases(svg, rank, x) {
  for (const phase of phasesOf(rank)) {
    const from = Math.max(x(phase.begin), GUTTER), to = x(phase.end);
    const left = Math.min(Math.max(x(phase.begin), GUTTER), to);
    if (to <= GUTTER || from > x(state.view[1]) || to - from < 2) continue;
    const right = Math.min(to, x(state.view[1]));
    draw(svg, 'line', { class: 'phase', x1: left + 1, x2: right - 1, y1: TOP - 6, y2: TOP - 6 });
    if (right - left < phase.what.length * 6 + 4) continue;
    draw(svg, 'text', { class: 'soft', x: (left + right) / 2, y: TOP - 10,
      'text-anchor': 'middle' }, phase.what);
  }
}

function drawLanes(svg, layout, width) {
  run.lanes.forEach((lane, i) => {
    const next = i + 1 < layout.tops.length ? layout.tops[i + 1] : layout.memory - BETWEEN;
    draw(svg, 'rect', { class: 'lane', x: GUTTER, y: layout.tops[i], width: width - GUTTER - RIGHT,
      height: next - layout.tops[i] - GAP });
    draw(svg, 'text', { x: GUTTER - 8, y: layout.tops[i] + 16, 'text-anchor': 'end' }, lane);
  });
}

function drawSpans(svg, rank, layout, x, width) {
  const bars = draw(svg, 'g', { 'clip-path': 'url(#clip)' });
  for (const span of rank.spans) {
    if (span[SPAN.end] < state.view[0] || span[SPAN.begin] > state.view[1]) continue;
    const left = Math.max(x(span[SPAN.begin]), GUTTER - 2);
    const right = Math.min(x(span[SPAN.end]), width - RIGHT + 2);
    const top = layout.tops[span[SPAN.lane]] + span[SPAN.depth] * LANE;
    const picked = state.unit >= 0 && span[SPAN.unit] === state.unit;
    const faded = state.unit >= 0 && !picked ? ' faded' : '';
    const what = name(span);
    const bar = draw(bars, 'rect', { x: left, y: top + 2, width: Math.max(right - left, 1.2),
      height: LANE - 4, rx: 3,
      class: `hit ${what}${faded}${picked ? ' bar-of-picked' : ''}` });
    if (what === 'wait') bar.setAttribute('style', 'fill:url(#hatch)');
    bar.dataset.unit = run.units[span[SPAN.unit]] || '';
    bar.dataset.what = what;
    bar.addEventListener('pointermove', (event) => showTip(event, spanTip(span)));
    bar.addEventListener('pointerleave', hideTip);
    bar.addEventListener('click', () => pick(span[SPAN.unit], rank.rank));
    const label = what === 'wait' ? '' : span[SPAN.unit] >= 0
      ? fittingName(span[SPAN.unit], right - left)
      : what.length * 6.4 + 6 <= right - left ? what : '';
    if (label) {
      draw(bars, 'text', { class: `inside on-${what}${faded}`, x: (left + right) / 2,
        y: top + LANE / 2 + 4, 'text-anchor': 'middle' }, label);
    }
    if (picked && rank.rank === state.rank && span[SPAN.lane] !== 1) {
      drawIssue(bars, span, layout, x, top);
    }
  }
}

/** From the call, on the computing stream, to the transfer. */
function drawIssue(bars, span, layout, x, top) {
  const from = x(span[SPAN.issued]), to = x(span[SPAN.begin]);
  const compute = layout.tops[1] + (span[SPAN.lane] < 1 ? 2 : LANE - 2);
  const bar = span[SPAN.lane] < 1 ? top + LANE - 2 : top + 2;
  draw(bars, 'path', { class: 'issue', d: `M${from},${compute}L${to},${bar}` });
  draw(bars, 'circle', { class: 'issue', cx: from, cy: compute, r: 2.5 });
}

function drawMemory(svg, index, layout, x, width) {
  const rank = run.ranks[index];
  const y = (bytes) => layout.bottom - bytes / (1.08 * highest) * MEMORY;
  const step = tickStep(highest, 4);
  const [unit, size] = fitting(BYTES, highest);
  for (let bytes = 0; bytes <= 1.04 * highest; bytes += step) {
    draw(svg, 'line', { class: 'grid', x1: GUTTER, x2: width - RIGHT, y1: y(bytes), y2: y(bytes) });
    draw(svg, 'text', { class: 'soft', x: GUTTER - 8, y: y(bytes) + 4, 'text-anchor': 'end' },
      bytes === 0 ? '0' : `${plain(bytes / size)} ${unit}`);
  }
  draw(svg, 'text', { x: GUTTER - 8, y: layout.memory - 8, 'text-anchor': 'end' }, 'memory');
  const clipped = draw(svg, 'g', { 'clip-path': 'url(#clip)' });
  const all = visible(curves[index], x);
  if (state.unit < 0) {
    drawStack(clipped, all, x, y, '');
  } else {
    drawStack(clipped, all, x, y, 'faded');
    const own = curveOf(rank, (change) => change[CHANGE.unit] === state.unit);
    drawStack(clipped, visible(own, x), x, y, '');
    draw(clipped, 'path', { class: 'outline', d: steps(all, (p) => p.total, x, y, 'M') });
  }
  draw(svg, 'line', { class: 'peak', x1: GUTTER, x2: width - RIGHT, y1: y(rank.peak),
    y2: y(rank.peak) });
  draw(svg, 'text', { class: 'soft', x: width - RIGHT - 2, y: y(rank.peak) - 4,
    'text-anchor': 'end' }, `peak ${exact(rank.peak)}`);
}

function drawRank(card, index) {
  const rank = run.ranks[index];
  const svg = card.querySelector('svg');
  const width = Math.max(360, card.clientWidth - 28);
  const layout = layoutOf(rank);
  const [from, to] = state.view;
  const x = (time) => GUTTER + (time - from) / (to - from) * (width - GUTTER - RIGHT);
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} ${layout.height}`);
  svg.setAttribute('height', layout.height);
  const defs = draw(svg, 'defs', {});
  const clip = draw(defs, 'clipPath', { id: 'clip' });
  draw(clip, 'rect', { x: GUTTER, y: 0, width: width - GUTTER - RIGHT, height: layout.height });
  const hatch = draw(defs, 'pattern', { id: 'hatch', width: 6, height: 6,
    patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' });
  draw(hatch, 'line', { x1: 0, x2: 0, y1: 0, y2: 6, stroke: 'var(--hatch)', 'stroke-width': 3 });
  drawLanes(svg, layout, width);
  drawAxis(svg, layout, x, width);
  drawSpans(svg, rank, layout, x, width);
  drawPhases(svg, rank, x);
  drawMemory(svg, index, layout, x, width);
  const cross = draw(svg, 'line', { class: 'cross', x1: -9, x2: -9, y1: TOP - 2,
    y2: layout.bottom });
  listen(svg, index, layout, cross, width);
}

// ------------------------------------------------------------------------------------------ tips
function showTip(event, content) {
  const tip = byId('tip');
  tip.replaceChildren(...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - box.width - 12
    : event.clientX + 16;
  const top = Math.min(event.clientY + 14, innerHeight - box.height - 6);
  tip.style.left = Math.max(4, left) + 'px';
  tip.style.top = Math.max(4, top) + 'px';
}
const hideTip = () => { byId('tip').hidden = true; };

function spanTip(span) {
  const unit = run.units[span[SPAN.unit]];
  const activity = run.activities[span[SPAN.activity]];
  const lines = [`${momentText(span[SPAN.begin])} … ${momentText(span[SPAN.end])}`,
    `lasts ${timeText(span[SPAN.end] - span[SPAN.begin])}`];
  if (run.lanes[span[SPAN.lane]] !== 'compute') {
    lines.push(`issued at ${momentText(span[SPAN.issued])}`,
      `${activity.name === 'copy' ? 'copies' : 'receives'} ${exact(span[SPAN.nbytes])}, ` +
      `for ${span[SPAN.phase]}`);
    if (!run.virtual) lines.push('the bar ends where waiting for it ended');
  }
  const head = make('b', {}, (span[SPAN.operation] && activity.name !== 'wait'
    ? span[SPAN.operation] : activity.title) + (unit ? ' · ' + unit : ''));
  return [head, ...lines.map((line) => make('div', {}, line))];
}

function memoryTip(index, time) {
  const point = pointAt(curves[index], time);
  const rows = stack.filter((kind) => point.bytes[kind] > 0).reverse().map((kind) =>
    make('tr', {}, make('td', {}, make('span', { class: 'swatch ' + run.kinds[kind].name })),
      make('td', {}, run.kinds[kind].title),
      make('td', { class: 'number' }, exact(point.bytes[kind]))));
  return [make('b', {}, `${momentText(time)} · ${exact(point.total)}`),
    make('table', {}, make('tbody', {}, ...rows))];
}

// ---------------------------------------------------------------------------------- moving about
function zoom(factor, around) {
  const [from, to] = state.view;
  const length = Math.min(whole[1], Math.max((to - from) * factor, whole[1] / 1e5, 10));
  const part = (around - from) / (to - from);
  show(around - part * length, length);
}
function show(from, length) {
  const begin = Math.min(Math.max(0, from), whole[1] - length);
  state.view = [begin, begin + length];
  drawAll();
}

function listen(svg, index, layout, cross, width) {
  const timeOf = (event) => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * width / box.width;
    const part = (at - GUTTER) / (width - GUTTER - RIGHT);
    return state.view[0] + Math.min(1, Math.max(0, part)) * (state.view[1] - state.view[0]);
  };
  svg.onwheel = (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, timeOf(event));
  };
  svg.onpointermove = (event) => {
    const box = svg.getBoundingClientRect();
    const [dx, dy] = [event.clientX - box.left, event.clientY - box.top];
    if (event.buttons === 1 && state.dragged !== undefined) {
      const length = state.view[1] - state.view[0];
      const moved = (state.dragged - dx) / (width - GUTTER - RIGHT) * length;
      state.dragged = dx;
      if (moved !== 0) show(state.view[0] + moved, length);
      return;
    }
    cross.setAttribute('x1', dx);
    cross.setAttribute('x2', dx);
    if (dy >= layout.memory && dy <= layout.bottom && dx >= GUTTER) {
      showTip(event, memoryTip(index, timeOf(event)));
    } else if (!event.target.classList.contains('hit')) {
      hideTip();
    }
  };
  svg.onpointerdown = (event) => {
    state.dragged = event.clientX - svg.getBoundingClientRect().left;
  };
  svg.onpointerleave = () => {
    hideTip();
    cross.setAttribute('x1', -9);
    cross.setAttribute('x2', -9);
  };
}

// ----------------------------------------------------------------------------- the life of a unit
function pick(unit, rank) {
  location.hash = unit < 0 ? '' : `unit=${encodeURIComponent(run.units[unit])}&rank=${rank}`;
}

/** #unit=model.layers.0&rank=1 */
function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  state.unit = run.units.indexOf(address.get('unit'));
  const rank = run.ranks.findIndex((each) => String(each.rank) === address.get('rank'));
  state.rank = rank < 0 ? run.ranks[0].rank : run.ranks[rank].rank;
  drawAll();
  showLife();
}

const kindTitle = (lower) => {
  const kind = run.kinds.find((each) => each.name === lower);
  return kind ? kind.title : lower;
};

/** An event of a unit in words: [swatch, text, small print]. */
function tell(event, rank) {
  const [, unit, kind, what, phase, nbytes, duration] = event;
  const operation = what.replaceAll('_', '-');
  switch (kind) {
    case 'alloc': return [what, `${kindTitle(what)} get their memory`, '+ ' + exact(nbytes)];
    case 'free': return [what, `${kindTitle(what)} are freed`, '− ' + exact(nbytes)];
    case 'forward_begin': return ['forward', 'forward begins', ''];
    case 'forward_end': return ['forward', 'forward ends', ''];
    case 'backward_begin': return ['backward', 'backward begins', ''];
    case 'backward_end': return ['backward', 'backward ends', ''];
    case 'wait': return ['wait', duration > 0 ? `waited ${timeText(duration)} for the ${operation}`
      : `the ${operation} had already ended: no waiting`, ''];
    case 'issue': {
      const span = rank.spans.find((each) => each[SPAN.unit] === unit &&
        each[SPAN.operation] === what && each[SPAN.issued] === event[EVENT.time] &&
        run.lanes[each[SPAN.lane]] !== 'compute');
      const during = span && run.virtual
        ? `, on the ${what.startsWith('copy_to_') ? 'bus' : 'link'} ${momentText(span[SPAN.begin])} … ${momentText(span[SPAN.end])}` : '';
      const isCopy = what.startsWith('copy_to_');
      const swatch = isCopy ? 'copy' : what === 'all_gather' ? 'gather' : 'reduce';
      return [swatch, `${operation} issued for ${phase}`,
        `${isCopy ? 'copies' : 'receives'} ${exact(nbytes)}${during}`];
    }
    default: return ['step', kind, ''];
  }
}

/** How long a unit's full parameters existed, and the most bytes it held. */
function factsOf(rank, unit) {
  const full = run.kinds.findIndex((kind) => kind.name === 'unsharded_param');
  const curve = curveOf(rank, (change) => change[CHANGE.unit] === unit);
  let whileFull = 0;
  curve.forEach((point, i) => {
    const end = i + 1 < curve.length ? curve[i + 1].time : rank.end;
    if (point.bytes[full] > 0) whileFull += end - point.time;
  });
  const spans = rank.spans.filter((span) => span[SPAN.unit] === unit);
  const sum = (what, value) => spans.filter((span) => name(span) === what)
    .reduce((total, span) => total + value(span), 0);
  const lasting = (span) => span[SPAN.end] - span[SPAN.begin];
  const received = (span) => span[SPAN.nbytes];
  const count = (what) => spans.filter((span) => name(span) === what).length;
  return [
    ['full parameters', exact(Math.max(...curve.map((point) => point.bytes[full])))],
    ['… in memory for', `${timeText(whileFull)} of ${timeText(rank.end)}`],
    ['most bytes held', exact(Math.max(...curve.map((point) => point.total)))],
    ['computing', timeText(sum('forward', lasting) + sum('backward', lasting))],
    ['waited for', timeText(sum('wait', lasting))],
    [`gathered ${count('gather')}×`, exact(sum('gather', received))],
    [`reduced ${count('reduce')}×`, exact(sum('reduce', received))],
  ];
}

/** Bytes of a unit that become another kind, like a reduction's result that becomes its shard of
    the gradient: [time, swatch, text, small print]. Activations are reused all the time: untold. */
function handoversOf(rank, unit) {
  const rows = [];
  rank.changes.forEach((change, i) => {
    if (change[CHANGE.unit] !== unit || !change[CHANGE.handsOver]) return;
    const kindOf = (each) => run.kinds[each[CHANGE.kind]];
    const [before, after] = [kindOf(change), kindOf(rank.changes[i + 1])];
    if (before.name === after.name || ['activation', 'temp'].includes(before.name)) return;
    rows.push([change[CHANGE.time], after.name, `${before.title} become ${after.title}`,
      exact(-change[CHANGE.delta])]);
  });
  return rows;
}

function showLife() {
  const panel = byId('life');
  if (state.unit < 0) {
    panel.replaceChildren(make('h2', {}, 'The life of a unit'),
      make('p', {}, 'Click a bar, or a name above: every event of that unit, and its bytes.'));
    return;
  }
  const rank = run.ranks.find((each) => each.rank === state.rank);
  const facts = make('dl', {});
  for (const [what, value] of factsOf(rank, state.unit)) {
    facts.append(make('dt', {}, what), make('dd', {}, value));
  }
  const moments = rank.events.filter((event) => event[EVENT.unit] === state.unit)
    .map((event) => [event[EVENT.time], ...tell(event, rank)])
    .concat(handoversOf(rank, state.unit)).sort((a, b) => a[0] - b[0]);
  const rows = moments.map(([time, swatch, text, small]) => {
    const words = make('td', {}, text);
    if (small) words.append(make('small', {}, small));
    return make('tr', {}, make('td', { class: 'time' }, momentText(time)),
      make('td', {}, make('span', { class: 'swatch ' + swatch })), words);
  });
  panel.replaceChildren(
    make('button', { class: 'close', onclick: () => pick(-1) }, 'close'),
    make('h2', {}, run.units[state.unit]), make('p', {}, `its life on rank ${state.rank}`), facts,
    make('table', {}, make('tbody', {}, ...rows)));
}

// ------------------------------------------------------------------------------------- beginning
function build() {
  byId('title').textContent = run.title;
  byId('summary').textContent =
    `${timeText(whole[1])}${run.virtual ? ' on the virtual clock' : ', measured'} · ` +
    run.ranks.map((rank) => `rank ${rank.rank} peak ${byteText(rank.peak)}`).join(' · ') +
    (run.ranks.length < run.world_size ? ` · ${run.world_size} ranks in all` : '');
  const used = new Set(run.ranks.flatMap((rank) => rank.spans.map(name)));
  run.activities.filter((each) => used.has(each.name))
    .forEach((each) => byId('activities').append(key(each.name, each.title)));
  run.units.forEach((unit, i) => byId('units').append(
    make('button', { title: unit, onclick: () => pick(state.unit === i ? -1 : i, state.rank) },
      shortName(i))));
  run.ranks.forEach((rank, i) => {
    const legend = make('div', { class: 'legend' });
    kindsHeld(curves[i]).forEach((kind) =>
      legend.append(key(run.kinds[kind].name, run.kinds[kind].title)));
    const card = make('section', { class: 'rank' },
      make('div', { class: 'head' }, make('h2', {}, `rank ${rank.rank}`)), legend);
    draw(card, 'svg', { role: 'img', 'aria-label': `streams and memory of rank ${rank.rank}` });
    card.append(legend);
    byId('ranks').append(card);
  });
  const middle = () => (state.view[0] + state.view[1]) / 2;
  byId('closer').onclick = () => zoom(0.6, middle());
  byId('farther').onclick = () => zoom(1 / 0.6, middle());
  byId('whole').onclick = () => show(0, whole[1]);
}

function drawAll() {
  [...document.querySelectorAll('.rank')].forEach(drawRank);
  [...byId('units').children].forEach((button, i) =>
    button.classList.toggle('picked', i === state.unit));
}

window.addEventListener('error', (event) => { document.body.dataset.error = event.message; });
window.addEventListener('hashchange', readAddress);
window.addEventListener('resize', drawAll);
build();
readAddress();
document.body.dataset.ready = 'yes';
