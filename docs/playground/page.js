'use strict';
// The sliders, and what they change: asks estimate() (estimate.js) and draws its answer. No library,
// no network. The setting stands in the address, so that it can be shared.

const byId = (id) => document.getElementById(id);
const sum = (values) => values.reduce((a, b) => a + b, 0);

// ------------------------------------------------------------------------------- numbers as text
const TIMES = [['ps', 1], ['ns', 1e3], ['µs', 1e6], ['ms', 1e9], ['s', 1e12]];
const BYTES = [['B', 1], ['kB', 1e3], ['MB', 1e6], ['GB', 1e9], ['TB', 1e12]];
const fitting = (units, value) => units.findLast((unit) => unit[1] <= value) ?? units[0];
const withUnit = (units, value) => {
  const [name, size] = fitting(units, value);
  return `${Number((value / size).toPrecision(4))} ${name}`;
};
const exact = (value) => value.toLocaleString('en-US');
const percent = (part) => `${(100 * part).toFixed(1)} %`;

// ------------------------------------------------------------------------------------ the setting

let models;  // by name
const isSharded = ({ strategy }) => strategy === 'fsdp';
/** Whether each rank steps its own part of the parameters. */
const divides = ({ strategy }) => ['fsdp', 'zero1', 'zero2'].includes(strategy);
/** A slider has stops, and a menu has choices. `reads` turns a value into what estimate() takes;
    `needs` says when the control counts. */
const CONTROLS = [
  { key: 'model', label: 'Model, and its parameters', choices: {} },
  { key: 'strategy', label: 'Strategy', choices: { fsdp: 'FSDP (ZeRO-3)', zero2: 'ZeRO-2',
    zero1: 'ZeRO-1', ddp: 'DDP', single: 'one process' } },
  { key: 'world', label: 'Ranks, W', stops: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256,
    512, 1024], needs: ({ strategy }) => strategy !== 'single' },
  { key: 'replicas', label: 'Replicas of the shards, R', stops: ({ world }) =>
    [1, 2, 3, 4, 8, 16].filter((R) => world % R === 0), needs: isSharded },
  { key: 'batch', label: 'Sequences per rank, B', stops: [1, 2, 3, 4, 6, 8, 12, 16, 32, 64] },
  { key: 'length', label: 'Tokens per sequence, T', stops: ({ model }) =>
    [16, 8, 4, 2, 1].map((n) => Math.floor(models[model].length / n)).filter((T) => T > 0) },
  { key: 'precision', label: 'Precision', choices: { float32: 'float32',
    mixed: 'bfloat16, float32 sums', bfloat16: 'bfloat16, bfloat16 sums' } },
  { key: 'checkpoint', label: 'Computed again in backward', choices: { none: 'nothing',
    inside: 'blocks', operations: 'blocks, but for some results' } },
  { key: 'reshard', label: 'Reshard after forward', choices: { true: 'yes', false: 'no' },
    needs: isSharded },
  { key: 'prefetch', label: 'Units prefetched', stops: [0, 1, 2, 3, 4], needs: isSharded },
  { key: 'offload', label: 'Masters and optimizer on the host', choices: { true: 'yes',
    false: 'no' }, needs: divides },
  { key: 'link', label: 'Link', unit: 'GB/s', stops: [1, 3, 6, 12.5, 25, 50, 100, 200, 400, 900],
    reads: (value) => value * 1e9 },
  { key: 'latency', label: 'Latency of a hop', unit: 'µs', stops: [1, 2, 5, 10, 20, 50, 100],
    reads: (value) => value * 1e6 },
  { key: 'flops', label: 'Arithmetic', unit: 'TFLOP/s',
    stops: [10, 20, 50, 100, 200, 400, 1000, 2000], reads: (value) => value * 1e12 },
  { key: 'hbm', label: 'Memory bandwidth', unit: 'TB/s', stops: [0.25, 0.5, 1, 2, 3.5, 5, 8],
    reads: (value) => value * 1e12 },
  { key: 'bus', label: 'Bus to the host', unit: 'GB/s', stops: [8, 16, 25, 50, 100, 450],
    reads: (value) => value * 1e9,
    needs: (setting) => setting.offload === 'true' && divides(setting) },
];
const MACHINE = ['link', 'latency', 'flops', 'hbm', 'bus'];
const DEFAULTS = { model: 'llama2_7b', strategy: 'fsdp', world: 8, replicas: 1, batch: 1,
  length: 4096, precision: 'mixed', checkpoint: 'none', reshard: 'true', prefetch: 1,
  offload: 'false', link: 50, latency: 5, flops: 400, hbm: 2, bus: 25 };
/** What the model reads, and what gradients are summed in. */
const PRECISIONS = { float32: ['none', 'none'], mixed: ['bfloat16', 'float32'],
  bfloat16: ['bfloat16', 'bfloat16'] };
let chosen = { ...DEFAULTS };

const parameterCount = ({ parameters }) =>
  withUnit([['', 1], ['thousand', 1e3], ['million', 1e6], ['billion', 1e9]], parameters);
const stopsOf = ({ stops }) => typeof stops === 'function' ? stops(chosen) : stops;
/** What estimate() takes: the controls that count, with a precision as two formats. */
function settingOf(values) {
  const { precision, ...setting } = Object.fromEntries(
    CONTROLS.filter(({ needs }) => !needs || needs(values)).map(({ key, reads }) =>
      [key, reads ? reads(values[key]) : values[key]]));
  const [param, reduce] = PRECISIONS[precision];
  return { ...setting, param, reduce };
}
/** The address holds what differs from the defaults. A value that no control offers is ignored. */
function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  chosen = { ...DEFAULTS, length: 0 };
  for (const control of CONTROLS) {
    const text = address.get(control.key);
    if (control.choices && Object.hasOwn(control.choices, text)) chosen[control.key] = text;
    if (control.stops && text !== null && stopsOf(control).includes(Number(text))) {
      chosen[control.key] = Number(text);
    }
  }
  chosen.length ||= models[chosen.model].length;
  show();
}
function choose(key, value) {
  const place = stopsOf(CONTROLS.find((each) => each.key === 'length')).indexOf(chosen.length);
  chosen[key] = value;
  if (key === 'model') {  // the same part of its longest sequence
    const stops = stopsOf(CONTROLS.find((each) => each.key === 'length'));
    chosen.length = stops[Math.min(place, stops.length - 1)];
  }
  if (chosen.world % chosen.replicas !== 0) chosen.replicas = 1;
  const changed = Object.entries(chosen).filter(([name, current]) =>
    current !== (name === 'length' ? models[chosen.model].length : DEFAULTS[name]));
  history.replaceState(null, '', '#' + new URLSearchParams(changed));
  show();
}

// --------------------------------------------------------------------------------- making elements
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
function makeControl(control) {
  const { key, label, choices } = control;
  const input = choices
    ? make('select', { id: key, onchange: () => choose(key, input.value) },
      ...Object.entries(choices).map(([value, text]) => make('option', { value }, text)))
    : make('input', { id: key, type: 'range', min: 0, step: 1,
      oninput: () => choose(key, stopsOf(control)[input.value]) });
  byId(MACHINE.includes(key) ? 'machine' : 'training').append(make('div', { class: 'control' },
    make('label', { for: key }, label), make('output', { for: key, id: `${key}-value` }), input));
}
function showControl(control) {
  const input = byId(control.key), value = chosen[control.key];
  input.disabled = Boolean(control.needs && !control.needs(chosen));
  input.parentElement.classList.toggle('off', input.disabled);
  if (control.choices) {
    input.value = value;
    return;
  }
  const stops = stopsOf(control), isSingle = control.key === 'world' && input.disabled;
  const text = `${isSingle ? 1 : value} ${control.unit ?? ''}`.trim();
  input.max = stops.length - 1;
  input.value = stops.indexOf(value);
  input.setAttribute('aria-valuetext', text);
  byId(`${control.key}-value`).textContent = text;
}

// ------------------------------------------------------------------------------------- the results
const TITLES = { sharded_param: 'parameter shards', optimizer: 'optimizer state',
  buffer: 'buffers', sharded_grad: 'gradient shards', unsharded_param: 'full parameters',
  all_gather: 'all-gather buffers', unsharded_grad: 'full gradients',
  reduce_scatter: 'reduction results', activation: 'activations', temp: 'temporaries',
  forward: 'forward', recomputation: 'forward again', backward: 'backward',
  gradients: 'casts and means', optimizer_part: 'norm and optimizer',
  gathers: 'waiting for all-gathers', reductions: 'waiting for reductions',
  updates: 'waiting for the norm and broadcasts', copies: 'waiting for the bus' };
const WAITS = ['gathers', 'reductions', 'updates', 'copies'];
const titleOf = (name) => TITLES[name === 'optimizer' ? 'optimizer_part' : name];

/** A bar of shares, and a table of them. */
function showShares(id, amounts, units, title, isWait) {
  const total = sum(amounts.map(([, amount]) => amount));
  byId(`${id}-bar`).replaceChildren(...amounts.map(([name, amount]) => make('span', {
    class: isWait(name) ? `${name} wait` : name, style: `width: ${100 * amount / total}%`,
    title: `${title(name)}: ${withUnit(units, amount)}` })));
  byId(id).tBodies[0].replaceChildren(...amounts.map(([name, amount]) => make('tr', {},
    make('th', { scope: 'row' },
      make('span', { class: `swatch ${name}${isWait(name) ? ' wait' : ''}` }), title(name)),
    make('td', { title: exact(amount), 'data-name': name, 'data-exact': amount },
      withUnit(units, amount)), make('td', {}, percent(amount / total)))));
}

/** Why the step takes as long as it does, in words. */
function whatBinds({ strategy, world = 1, replicas = 1, prefetch }, { step, spent, channels }) {
  const { latency, transfer } = channels;
  const waiting = sum(WAITS.map((part) => spent[part]));
  if (spent.copies === Math.max(...WAITS.map((part) => spent[part])) && waiting > 0.02 * step) {
    return `The rank waits for the bus to its host during ${percent(spent.copies / step)} of the ` +
      'step. A faster bus would help, and so would more tokens per rank.';
  }
  if (world === 1) return 'Computation binds: a single rank communicates with nobody.';
  if (waiting < 0.02 * step) {
    return `Computation binds. The link is in use for ${percent((latency + transfer) / step)} of ` +
      'the step, and nearly all of that is hidden behind computation.';
  }
  const worst = WAITS.reduce((a, b) => spent[b] > spent[a] ? b : a);
  const what = { gathers: 'all-gathers', reductions: 'reductions',
    updates: 'the norm and broadcasts', copies: 'the bus' }[worst];
  const waits = `waits for communication during ${percent(waiting / step)} of the step, ` +
    `mostly for ${what}. `;
  const begin = waiting > step / 2 ? `Communication binds: the rank ${waits}`
    : `Computation is the larger part, but the rank ${waits}`;
  if (latency > transfer) {
    return begin + `On the link, latency outweighs bytes: ${world / replicas - 1} hops for each ` +
      'collective of the shards. ' +
      'A faster link would change little.';
  }
  if (strategy === 'fsdp' && prefetch === 0) {
    return begin + 'Without prefetching, no all-gather overlaps with computation.';
  }
  return begin + 'On the link, bytes outweigh latency. A faster link would help, and so would ' +
    'more tokens per rank, which leave more computation to hide behind.';
}
/** And what the peak is made of. */
function whatIsHeld(setting, peak) {
  const { reshard, prefetch, checkpoint } = setting;
  const [first, second] = KINDS.toSorted((a, b) => peak[b] - peak[a]);
  const title = TITLES[first];
  const share = (kind) => `${TITLES[kind]} ${percent(peak[kind] / peak.total)}`;
  const remedy = () => {
    if (['activation', 'temp'].includes(first)) {
      return `A smaller B or T shrinks the ${title}` +
        (first === 'activation' && checkpoint === 'none' ? ', or computing blocks again.' : '.');
    }
    if (['sharded_param', 'sharded_grad', 'optimizer'].includes(first) && divides(setting)) {
      return `More ranks divide the ${title} further.`;
    }
    if (setting.strategy !== 'fsdp') return `FSDP divides the ${title} among the ranks.`;
    if (first !== 'unsharded_param') return '';
    if (reshard === 'false') {
      return 'Resharding after forward frees most full parameters until backward.';
    }
    return prefetch > 0 ? 'Prefetching fewer units holds fewer full parameters.' : '';
  };
  return `The peak comes in ${peak.moment}: ${share(first)}, ${share(second)}. ${remedy()}`;
}

/** The command that prints the same numbers. */
function commandOf({ strategy, world, replicas, prefetch, reshard, checkpoint, offload, bus }) {
  const { precision } = chosen;
  return ['build/release/bin/unshard-estimate', `--model.preset ${chosen.model}`,
    `--parallel.strategy ${strategy}`, `--training.local_batch_size ${chosen.batch}`,
    `--training.seq_len ${chosen.length}`,
    precision !== 'float32' && '--training.mixed_precision_param bfloat16',
    precision === 'bfloat16' && '--training.mixed_precision_reduce bfloat16',
    reshard && `--parallel.reshard_after_forward ${reshard}`,
    prefetch !== undefined && `--parallel.prefetch_depth ${prefetch}`,
    replicas > 1 &&
      `--parallel.ranks ${world} --parallel.data_parallel_replicate_degree ${replicas}`,
    checkpoint !== 'none' && '--training.activation_checkpoint ' +
      `${checkpoint === 'inside' ? 'block' : checkpoint}`,
    offload === 'true' &&
      `--parallel.offload_${strategy === 'fsdp' ? 'params' : 'optimizer'} true`,
    `--link ${chosen.link}GB/s`, `--latency ${chosen.latency}us`, `--flops ${chosen.flops}T`,
    `--hbm ${chosen.hbm}TB/s`, bus && `--bus ${chosen.bus}GB/s`,
    strategy === 'single' ? `--sweep batch=${chosen.batch}` : `--sweep world=${world}`,
    '--format json'].filter(Boolean).join(' ');
}

function show() {
  CONTROLS.forEach(showControl);
  const setting = settingOf(chosen);
  byId('command').textContent = commandOf(setting);
  let result;
  try {
    result = estimate(setting);
  } catch (error) {  // a setting that does not fit together: the walk says why
    byId('refused').textContent = error.message;
  }
  byId('results').classList.toggle('off', !result);
  if (!result) return;
  byId('refused').textContent = '';
  const { peak, step, spent } = result;
  const exposed = sum(WAITS.map((part) => spent[part]));
  const headline = (id, text, more) => {
    byId(id).textContent = text;
    byId(`${id}-exact`).textContent = more;
  };
  headline('peak', withUnit(BYTES, peak.total), `${exact(peak.total)} B`);
  headline('step', withUnit(TIMES, step), `${exact(step)} ps`);
  headline('exposed', percent(exposed / step), `${exact(exposed)} ps`);
  byId('time-binds').textContent = whatBinds(setting, result);
  byId('memory-binds').textContent = whatIsHeld(setting, peak);
  const held = KINDS.filter((kind) => peak[kind] > 0).map((kind) => [kind, peak[kind]]);
  showShares('memory', held, BYTES, (kind) => TITLES[kind], () => false);
  const used = PARTS.filter((part) => spent[part] > 0).map((part) => [part, spent[part]]);
  showShares('time', used, TIMES, titleOf, (part) => WAITS.includes(part));
  drawTimeline(byId('timeline'), result);
}

window.addEventListener('error', (event) => { document.body.dataset.error = event.message; });
/** Settles when the page has drawn itself, or says why it cannot. */
const ready = loadModels().then((found) => {
  models = found;
  CONTROLS.find(({ key }) => key === 'model').choices = Object.fromEntries(Object.entries(models).map(([name, sizes]) =>
    [name, `${name}, ${parameterCount(sizes)}`]));
  CONTROLS.forEach(makeControl);
  byId('commit').textContent = COMMIT && `Computed by the walk of commit ${COMMIT}.`;
  byId('controls').addEventListener('reset', (event) => {
    event.preventDefault();
    history.replaceState(null, '', '#');
    readAddress();
  });
  window.addEventListener('hashchange', readAddress);
  window.addEventListener('resize', show);
  readAddress();
  document.body.dataset.ready = 'yes';
}).catch((error) => {
  byId('refused').textContent = error.message;
  document.body.dataset.error = error.message;
});
