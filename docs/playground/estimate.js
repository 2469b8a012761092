'use strict';
// Asks the walk of apps/paper what a step takes. It is compiled to WebAssembly, and engine.js holds
// it as a text (MODULE), with the commit that it was made of (COMMIT).

const KINDS = ['sharded_param', 'optimizer', 'buffer', 'sharded_grad', 'unsharded_param',
  'all_gather', 'unsharded_grad', 'reduce_scatter', 'activation', 'temp'];
/** What a rank does, and from gathers on, what it waits for. These add up to the time of a step. */
const PARTS = ['forward', 'recomputation', 'backward', 'gradients', 'optimizer', 'gathers',
  'reductions', 'updates', 'copies'];
let module, engine;

/** An instance of the module. What it throws becomes an Error, and ends the instance. */
function start() {
  const bytes = () => new Uint8Array(exports.memory.buffer);
  const textAt = (begin) => {
    const all = bytes();
    return new TextDecoder().decode(all.subarray(begin, all.indexOf(0, begin)));
  };
  const thrown = (text) => {
    throw new Error(textAt(text));
  };
  // It asks a system for nothing. (Before it aborts, it would write why.)
  const system = new Proxy({}, { get: (_, name) => () => {
    if (['fd_write', 'proc_exit'].includes(name)) throw new Error(`the module asked for ${name}`);
    return 0;
  } });
  const { exports } = new WebAssembly.Instance(module,
    { env: { thrown }, wasi_snapshot_preview1: system });
  exports._initialize();
  const ask = (what, ...values) => {
    try {
      return JSON.parse(textAt(exports[what](...values)));
    } catch (error) {
      engine = null;
      throw error;
    }
  };
  return {
    models: () => ask('models'),
    step: (setting) => {
      const text = new TextEncoder().encode(setting);
      const room = exports.room(text.length);
      bytes().set(text, room);
      return ask('step', room);
    },
  };
}

/** Compiles the module. @return the models by name: { parameters, length } */
async function loadModels() {
  if (typeof MODULE === 'undefined') {
    throw new Error('Here the page has no engine, which is compiled for it: run ' +
      '`make playground`, and open build/playground/index.html.');
  }
  module = await WebAssembly.compile(Uint8Array.from(atob(MODULE), (c) => c.charCodeAt(0)));
  engine = start();
  return Object.fromEntries(engine.models().map(({ name, ...sizes }) => [name, sizes]));
}

/** What a setting takes, as apps/playground/page.h says. Bytes are whole numbers, and times whole
    picoseconds: a double is exact up to 2^53, which is 9 PB or two and a half hours.
    @throws Error in the walk's words */
function estimate(setting) {
  engine ??= start();
  const found = engine.step(Object.entries(setting).map((each) => each.join(' ')).join('\n'));
  found.spans = found.spans.map(([stream, part, what, begin, end]) =>
    ({ stream, part, what, begin, end }));
  return found;
}
