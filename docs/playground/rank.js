'use strict';
// What a rank counts: bytes by kind, and picoseconds by what they are spent on.
//
// Bytes are whole numbers, and times are whole picoseconds. A double is exact up to 2^53, which is
// 9 PB or two and a half hours.

const KINDS = ['sharded_param', 'optimizer', 'buffer', 'sharded_grad', 'unsharded_param',
  'all_gather', 'unsharded_grad', 'reduce_scatter', 'activation', 'temp'];
/** What a rank does, and from gathers on, what it waits for. These add up to the time of a step. */
const PARTS = ['forward', 'backward', 'gradients', 'optimizer', 'gathers', 'reductions', 'updates'];
const zeros = (names) => Object.fromEntries(names.map((name) => [name, 0]));

/** Counts bytes by kind; the first of equal peaks is kept. */
class Ledger {
  now = zeros(KINDS);
  total = 0;
  peak = { total: 0 };

  hold(kind, nbytes, moment) {
    this.now[kind] += nbytes;
    this.total += nbytes;
    if (this.total > this.peak.total) this.peak = { ...this.now, total: this.total, moment };
  }
  drop(kind, nbytes) {
    this.now[kind] -= nbytes;
    this.total -= nbytes;
  }
}

/** A computing stream, and a channel that carries one collective after the other. */
class Clock {
  now = 0;
  channel = 0;  // when it is free

  constructor({ flops, hbm, link, latency }) {
    this.psPerFlop = 1e12 / flops;
    this.psPerByte = 1e12 / hbm;
    this.linkPsPerByte = 1e12 / link;
    this.latency = latency;
    this.begin();
  }
  /** From here on it is written down what time is spent on. */
  begin() {
    this.from = this.now;
    this.spent = zeros(PARTS);
    this.channelTime = { latency: 0, transfer: 0 };
    this.spans = [];
  }
  /** A kernel takes as long as its arithmetic or its memory traffic, whichever is longer. */
  compute(part, flop, nbytes, what) {
    const ps = Math.round(Math.max(flop * this.psPerFlop, nbytes * this.psPerByte));
    this.spend(part, this.now + ps, what);
  }
  /** Starts now, or when the channel is free. @return when it ends */
  collective(W, nbytes, part, what) {
    const begin = Math.max(this.now, this.channel), latency = (W - 1) * this.latency;
    this.channel = begin + latency + Math.round(nbytes * this.linkPsPerByte);
    this.channelTime.latency += latency;
    this.channelTime.transfer += this.channel - begin - latency;
    if (W > 1) this.spans.push({ lane: 'link', part, what, begin, end: this.channel });
    return this.channel;
  }
  wait(part, end, what) {
    this.spend(part, Math.max(this.now, end), what);
  }
  spend(part, end, what) {
    const last = this.spans.findLast((span) => span.lane === 'compute');
    if (last && last.part === part && last.what === what) last.end = end;
    else if (end > this.now) {
      this.spans.push({ lane: 'compute', part, what, begin: this.now, end });
    }
    this.spent[part] += end - this.now;
    this.now = end;
  }
}

const SCRATCH = 256 * 1024;     // of the thread that runs the kernels
const COUNTERS = 8 * 514;       // the exact sum of squares, of which the norm is the root
const BUCKET = 25 * 1024 ** 2;  // of DDP

/** What FSDP and whole parameters share. */
class Rank {
  constructor(setting) {
    Object.assign(this, PRECISIONS[setting.precision]);
    this.W = setting.world;
    this.model = MODELS[setting.model];
    this.parameters = parametersOf(this.model);
    Object.assign(this, segmentsOf(this.model, setting.batch, setting.length, this.p));
    this.clock = new Clock(setting);
    this.ledger = new Ledger();
    this.curve = [];
    this.hasState = false;
    this.hold('buffer', 4 * this.model.T * this.model.d / this.model.H);  // cos and sin
    this.hold('temp', SCRATCH);
  }

  hold(kind, nbytes) {
    this.ledger.hold(kind, nbytes, this.moment);
    this.curve.push([this.clock.now, this.ledger.total]);
  }
  drop(kind, nbytes) {
    this.ledger.drop(kind, nbytes);
    this.curve.push([this.clock.now, this.ledger.total]);
  }
  /** A copy in another format takes the place of `before` bytes. */
  replace(kind, before, after) {
    this.hold(kind, after);
    this.drop(kind, before);
  }
  copy(part, numel, from, to, what) {
    this.clock.compute(part, 0, numel * (from + to), what);
  }

  /** Runs operations; calls `complete` where the gradient of an operation's weight is complete. */
  walk(operations, part, segment, complete = () => {}) {
    this.moment = `${part} of ${segment.name.startsWith('block') ? '' : 'the '}${segment.name}`;
    operations.forEach(({ name, change, kernels }, i) => {
      const { activation = 0, temp = 0, grad = 0 } = change;
      for (const [kind, nbytes] of [['activation', activation], ['temp', temp]]) {
        if (nbytes < 0) this.drop(kind, -nbytes);
      }
      if (activation > 0) this.hold('activation', activation);
      if (temp > 0) this.hold('temp', temp);
      if (this.keepsEachGradient) this.hold('unsharded_grad', grad);
      for (const [flop, moved] of kernels) {
        this.clock.compute(part, flop, moved * this.p, segment.name);
      }
      if (operations[i + 1]?.name !== name) complete(name);
    });
  }

  /** The norm over what this rank counts, AdamW on what it updates, and zero_grad. */
  update(counted, updated, sumsCounters) {
    const n = updated.reduce((sum, numel) => sum + numel, 0);
    this.moment = 'the optimizer step';
    this.hold('temp', COUNTERS);
    for (const numel of counted) this.clock.compute('optimizer', 2 * numel, 4 * numel, 'clip');
    if (sumsCounters) {
      const nbytes = Math.floor(2 * COUNTERS * (this.W - 1) / this.W);
      this.clock.wait('updates', this.clock.collective(this.W, nbytes, 'updates', 'norm'), 'norm');
    }
    this.drop('temp', COUNTERS);
    if (!this.hasState) this.hold('optimizer', 2 * 4 * n);  // zeros, in the first step
    this.hasState = true;
    for (const numel of updated) {
      this.clock.compute('optimizer', 15 * numel, 7 * 4 * numel, 'AdamW');
    }
  }
  scale(numel) {
    this.clock.compute('gradients', numel, 2 * 4 * numel, 'mean');
  }
}
