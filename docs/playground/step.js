'use strict';
// One training step on one rank: the bytes it holds at every moment, and the time it takes on a
// modeled machine. Nothing is trained: the step is walked through on paper, event by event.
//
// The rules are those of MemoryFormula and TimeFormula (apps/paper/), which equal the real
// engine; tests/playground/ compares every number with unshard-estimate's. They hold for one
// micro-batch per step, AdamW, a gradient clip and one flat parameter per unit, on rank 0 of W.

// ------------------------------------------------------------------------------------------- FSDP

/** Every rank keeps 1/W of each unit: the embedding, every block, the head. If the head reads the
    embedding's table, both belong to the root, which is used first and last. */
class Fsdp extends Rank {
  constructor(setting) {
    super(setting);
    this.prefetch = setting.prefetch;
    this.reshardsAfterForward = setting.reshard;
    const sizes = this.parameters.map((each) => Object.values(each).reduce((a, b) => a + b));
    const last = sizes.length - 1, tied = this.model.tied;
    if (tied) sizes[0] += sizes.pop();
    this.units = sizes.map((numel, i) => ({
      name: tied && i === 0 ? 'root' : this.segments[i].name,
      numel, n: Math.ceil(numel / this.W), P: Math.ceil(numel / this.W) * this.W,
      // The root rule: the last unit is needed again at once, and the root until the end.
      isKept: i === (tied ? 0 : last), state: 'sharded' }));
    this.root = tied ? this.units[0] : null;
    this.unitOf = this.segments.map((_, i) => tied && i % last === 0 ? null : this.units[i]);
    this.forwardOrder = this.backwardOrder = [];  // unknown before the first forward has ended
    for (const unit of this.units) this.hold('sharded_param', 4 * unit.n);
  }

  step() {
    this.hold('activation', this.data);
    this.forward();
    this.backward();
    this.drop('activation', this.data + 4);
    for (const { n } of this.units) {
      if (this.g !== 4) {
        this.replace('sharded_grad', this.g * n, 4 * n);
        this.copy('gradients', n, this.g, 4, 'cast');
      }
      if (this.W > 1) this.scale(n);
    }
    const shards = this.units.map((unit) => unit.n);  // rank 0 has no padding
    this.update(shards, shards, true);
    for (const n of shards) this.drop('sharded_grad', 4 * n);
  }

  forward() {
    this.beforeForward(this.root);
    this.segments.forEach((segment, i) => {
      this.beforeForward(this.unitOf[i]);
      this.walk(segment.forward, 'forward', segment);
      this.afterForward(this.unitOf[i]);
    });
    this.walk(this.loss.forward, 'forward', this.loss);
    this.forwardOrder = this.units;
    this.backwardOrder = this.units.filter((unit) => !unit.isKept).reverse();
  }
  backward() {
    this.walk(this.loss.backward, 'backward', this.loss);
    this.beforeBackward(this.root);
    for (let i = this.segments.length - 1; i >= 0; --i) {
      this.beforeBackward(this.unitOf[i]);
      this.walk(this.segments[i].backward, 'backward', this.segments[i]);
      this.afterBackward(this.unitOf[i]);
    }
    this.afterBackward(this.root);
    this.finishReduce();
  }

  // ---- parameters: unshard, prefetch, reshard
  startUnshard(unit) {
    if (unit.state !== 'sharded') return;
    this.hold('unsharded_param', this.p * unit.P);
    if (this.p !== 4) {  // the shard is cast before it is gathered
      this.hold('all_gather', this.p * unit.n);
      this.copy('gradients', unit.n, 4, this.p, 'cast');
    }
    const nbytes = (this.W - 1) * this.p * unit.n;
    unit.gathered = this.clock.collective(this.W, nbytes, 'gathers', unit.name);
    unit.state = 'in flight';
  }
  finishUnshard(unit) {
    this.startUnshard(unit);
    if (unit.state === 'unsharded') return;
    this.clock.wait('gathers', unit.gathered, unit.name);
    if (this.p !== 4) this.drop('all_gather', this.p * unit.n);
    unit.state = 'unsharded';
  }
  /** Gathers up to `prefetch` units ahead of `unit`; in backward, ahead of the kept unit too. */
  startAhead(order, unit) {
    const next = order.indexOf(unit) + 1;
    for (const ahead of order.slice(next, next + this.prefetch)) this.startUnshard(ahead);
  }
  reshard(unit) {
    this.drop('unsharded_param', this.p * unit.P);
    unit.state = 'sharded';
  }
  beforeForward(unit) {
    if (unit === null) return;
    this.finishUnshard(unit);
    this.startAhead(this.forwardOrder, unit);
  }
  afterForward(unit) {
    if (unit !== null && !unit.isKept && this.reshardsAfterForward) this.reshard(unit);
  }

  // ---- gradients: one unit is reduced while the next one computes
  beforeBackward(unit) {
    if (unit === null) return;
    this.finishUnshard(unit);
    this.startAhead(this.backwardOrder, unit);
    this.hold('unsharded_grad', this.p * unit.P);
  }
  afterBackward(unit) {
    if (unit === null) return;
    this.copy('gradients', unit.P - unit.numel, 0, this.p, 'padding');
    this.reshard(unit);
    this.finishReduce();
    this.startReduce(unit);
  }
  startReduce(unit) {
    this.reducedKind = this.p === this.g ? 'unsharded_grad' : 'reduce_scatter';
    if (this.p !== this.g) {  // gradients are cast before they are summed
      this.hold('reduce_scatter', this.g * unit.P);
      this.drop('unsharded_grad', this.p * unit.P);
      this.copy('gradients', unit.P, this.p, this.g, 'cast');
    }
    this.hold('reduce_scatter', this.g * unit.n);
    const nbytes = (this.W - 1) * this.g * unit.n;
    unit.reduced = this.clock.collective(this.W, nbytes, 'reductions', unit.name);
    this.reducing = unit;
  }
  finishReduce() {
    const unit = this.reducing;
    if (!unit) return;
    this.clock.wait('reductions', unit.reduced, unit.name);
    this.drop(this.reducedKind, this.g * unit.P);
    this.drop('reduce_scatter', this.g * unit.n);  // the same bytes are a gradient shard now
    this.hold('sharded_grad', this.g * unit.n);
    this.reducing = null;
  }
}

// ------------------------------------------------------------------------------ whole parameters

/** DDP, or one process: every rank holds all parameters, and gradients travel in buckets. */
class Whole extends Rank {
  constructor(setting) {
    super(setting);
    this.isDdp = setting.strategy === 'ddp';
    this.keepsEachGradient = !this.isDdp;  // they appear one by one, and not in a bucket
    this.parts = this.parameters.flatMap((of, segment) =>
      Object.entries(of).map(([name, numel]) => ({ segment, name, numel })));
    this.buckets = this.isDdp ? [] : this.parts.map((part) => ({ numel: part.numel }));
    if (this.isDdp) this.fillBuckets();
    this.numels = this.parts.map((part) => part.numel);
    const N = this.numels.reduce((a, b) => a + b);
    this.hold('unsharded_param', (4 + (this.p === 4 ? 0 : this.p)) * N);
  }
  /** Backward completes the last parameters first. */
  fillBuckets() {
    for (const part of this.parts.toReversed()) {
      const full = this.buckets.at(-1);
      if (!full || this.p * (full.numel + part.numel) > BUCKET) {
        this.buckets.push({ numel: 0, parts: [] });
      }
      this.buckets.at(-1).numel += part.numel;
      this.buckets.at(-1).parts.push(part);
    }
  }

  step() {
    if (this.hasState && this.p !== 4) {  // the copies that the model reads follow their masters
      for (const numel of this.numels) this.copy('gradients', numel, 4, this.p, 'cast');
    }
    if (this.isDdp) {
      for (const { numel } of this.buckets) this.hold('unsharded_grad', this.p * numel);
    }
    this.hold('activation', this.data);
    for (const each of [...this.segments, this.loss]) this.walk(each.forward, 'forward', each);
    this.backward();
    this.drop('activation', this.data + 4);
    for (const { numel } of this.buckets) {
      if (this.g !== 4) {
        this.replace('unsharded_grad', this.g * numel, 4 * numel);
        this.copy('gradients', numel, this.g, 4, 'cast');
      }
      if (this.W > 1) this.scale(numel);
    }
    // DDP's ranks hold the same gradients, and each counts every W-th one.
    const counted = this.numels.filter((_, i) => i % this.W === 0);
    this.update(counted, this.numels, this.isDdp);
    for (const { numel } of this.buckets) this.drop('unsharded_grad', 4 * numel);
  }

  backward() {
    const waiting = [...this.buckets];
    const missing = new Set(this.parts);
    this.walk(this.loss.backward, 'backward', this.loss);
    for (let i = this.segments.length - 1; i >= 0; --i) {
      this.walk(this.segments[i].backward, 'backward', this.segments[i], (name) => {
        if (!this.isDdp) return;
        missing.delete(this.parts.find((part) => part.segment === i && part.name === name));
        while (waiting.length > 0 && !waiting[0].parts.some((part) => missing.has(part))) {
          this.reduce(waiting.shift(), this.segments[i].name);
        }
      });
    }
    for (const bucket of this.buckets) {
      if (this.isDdp) this.clock.wait('reductions', bucket.reduced, bucket.name);
      else this.castGradient(bucket);
    }
  }
  castGradient({ numel }) {
    if (this.p === this.g) return;
    this.replace('unsharded_grad', this.p * numel, this.g * numel);
    this.copy('gradients', numel, this.p, this.g, 'cast');
  }
  reduce(bucket, name) {
    this.castGradient(bucket);
    const nbytes = Math.floor(2 * this.g * bucket.numel * (this.W - 1) / this.W);
    bucket.name = name;
    bucket.reduced = this.clock.collective(this.W, nbytes, 'reductions', name);
  }
}

/** What a setting takes: the peak of a training in bytes by kind, with its moment, and a step after
    the first (whose optimizer makes its state) in picoseconds.
    @param setting model, strategy (fsdp, ddp, single), world, batch, length, precision, reshard
    (after forward: true, false), prefetch; of the machine flops, hbm and link per second, and
    latency in ps */
function estimate(setting) {
  const rank = setting.strategy === 'fsdp' ? new Fsdp(setting) : new Whole(setting);
  rank.step();
  rank.clock.begin();
  rank.curve = [];
  rank.step();
  const { now, from, spent, channelTime, spans } = rank.clock;
  return { peak: rank.ledger.peak, step: now - from, spent, channelTime, from, spans,
    curve: rank.curve };
}
