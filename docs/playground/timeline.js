'use strict';
// Draws a step: what the rank computes, what is on the link meanwhile, and the bytes it holds.

const LANES = [['compute', 'computing'], ['link', 'link'], ['far_link', 'far link'], ['bus', 'bus']];
const GUTTER = 76, RIGHT = 8, LANE = 26, GAP = 6, MEMORY = 110, AXIS = 20;
const ON_THE_LINK = { gathers: 'all-gather', reductions: 'reduction', updates: 'norm or broadcast',
  copies: 'copy' };

function draw(parent, tag, attributes, text) {
  const element = document.createElementNS('http' + '://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

/** A length of 1, 2 or 5 times a power of ten, so that at most `ticks` fit. */
function tickStep(length, ticks) {
  const power = 10 ** Math.floor(Math.log10(length / ticks));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => length / step <= ticks);
}

function describe({ stream, part, what, begin, end }) {
  const time = withUnit(TIMES, end - begin);
  if (stream !== 'compute') return `${ON_THE_LINK[part]} of ${what}: ${time}`;
  if (WAITS.includes(part)) return `waiting for the ${ON_THE_LINK[part]} of ${what}: ${time}`;
  return `${part}, ${what}: ${time}`;
}

function drawSpans(svg, spans, lanes, x) {
  spans.forEach((span) => {
    const left = x(span.begin), width = x(span.end) - left;
    const lane = lanes.findIndex(([name]) => name === span.stream);
    const isWait = span.stream === 'compute' && WAITS.includes(span.part);
    const top = lane * (LANE + GAP);
    const bar = draw(svg, 'rect', { class: isWait ? 'wait' : `span ${span.part}`, x: left, y: top,
      width: Math.max(width - (width > 3 ? 0.6 : 0), 0.3), height: LANE });
    draw(bar, 'title', {}, describe(span));
    const label = span.what.replace('block ', '');
    if (!isWait && label.length * 6.6 + 4 < width) {
      draw(svg, 'text', { class: `inside on-${span.part}`, x: left + width / 2, y: top + 17,
        'text-anchor': 'middle' }, label);
    }
  });
}

/** The bytes held after each change; of the changes within a pixel, the highest is drawn. */
function drawMemory(svg, curve, end, x, top) {
  const most = Math.max(...curve.map(([, total]) => total));
  const y = (nbytes) => top + MEMORY * (1 - nbytes / (1.05 * most));
  const columns = new Map();
  for (const [time, total] of curve) {
    const column = Math.round(x(time));
    const known = columns.get(column) ?? { highest: 0 };
    columns.set(column, { highest: Math.max(known.highest, total), last: total });
  }
  let line = '', before = curve[0][1];
  for (const [column, { highest, last }] of columns) {
    line += `L${column},${y(before).toFixed(1)}V${y(highest).toFixed(1)}V${y(last).toFixed(1)}`;
    before = last;
  }
  line = `M${GUTTER},${y(curve[0][1]).toFixed(1)}${line}H${x(end).toFixed(1)}`;
  const step = tickStep(most, 3), [unit, size] = fitting(BYTES, most);
  for (let nbytes = 0; nbytes <= most; nbytes += step) {
    draw(svg, 'line', { class: 'grid', x1: GUTTER, x2: x(end), y1: y(nbytes), y2: y(nbytes) });
    draw(svg, 'text', { class: 'soft', x: GUTTER - 6, y: y(nbytes) + 4, 'text-anchor': 'end' },
      nbytes === 0 ? '0' : `${Number((nbytes / size).toPrecision(3))} ${unit}`);
  }
  draw(svg, 'path', { class: 'held', d: `${line}V${y(0)}H${GUTTER}Z` });
  draw(svg, 'path', { class: 'edge', d: line });
}

function drawTimeline(svg, { step, spans, curve }) {
  const lanes = LANES.filter(([name], i) => i < 2 || spans.some(({ stream }) => stream === name));
  const width = Math.max(300, svg.clientWidth), memory = lanes.length * (LANE + GAP) + 8;
  const bottom = memory + MEMORY;
  const x = (time) => GUTTER + time / step * (width - GUTTER - RIGHT);
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} ${bottom + AXIS}`);
  svg.setAttribute('height', bottom + AXIS);
  const hatch = draw(draw(svg, 'defs', {}), 'pattern', { id: 'hatch', width: 6, height: 6,
    patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' });
  draw(hatch, 'line', { y1: 0, y2: 6, stroke: 'var(--hatch)', 'stroke-width': 3 });
  lanes.forEach(([, title], i) => {
    draw(svg, 'rect', { class: 'lane', x: GUTTER, y: i * (LANE + GAP), height: LANE,
      width: width - GUTTER - RIGHT });
    draw(svg, 'text', { x: GUTTER - 6, y: i * (LANE + GAP) + 17, 'text-anchor': 'end' }, title);
  });
  const tick = tickStep(step, Math.max(2, Math.floor(width / 110)));
  const [unit, size] = fitting(TIMES, step);
  for (let i = 0; i * tick <= step; ++i) {
    const at = x(i * tick);
    draw(svg, 'line', { class: 'grid', x1: at, x2: at, y1: 0, y2: bottom });
    draw(svg, 'text', { class: 'soft', x: at, y: bottom + 14,
      'text-anchor': at > width - 20 ? 'end' : 'middle' },
      i === 0 ? '0' : `${Number((i * tick / size).toPrecision(4))} ${unit}`);
  }
  drawSpans(svg, spans, lanes, x);
  drawMemory(svg, curve, step, x, memory);
  const used = new Set(spans.map(({ stream, part }) =>
    stream === 'compute' && WAITS.includes(part) ? 'wait' : part));
  const names = { ...TITLES, optimizer: titleOf('optimizer'), ...ON_THE_LINK, wait: 'waiting' };
  byId('activities').replaceChildren(...[...PARTS, 'wait'].filter((part) => used.has(part))
    .map((part) => make('span', {}, make('span', { class: `swatch ${part}` }), names[part])));
}
