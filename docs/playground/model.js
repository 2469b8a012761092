'use strict';
// What a model allocates and computes, operation by operation.
//
// The bytes are those of apps/paper/paper_tape.cpp, and the kernels' costs those of
// common/tensor/ declares.

/** V vocabulary, d width, L blocks, H heads, G heads of keys and values, F width inside the MLP,
    T longest sequence; tied: the head reads the embedding's table. */
const MODELS = {
  nano: { V: 31, d: 16, L: 2, H: 2, G: 2, F: 40, T: 8 },
  tiny: { V: 256, d: 128, L: 4, H: 4, G: 4, F: 352, T: 128 },
  small: { V: 256, d: 384, L: 6, H: 6, G: 6, F: 1024, T: 256 },
  llama_124m: { V: 50304, d: 768, L: 12, H: 12, G: 12, F: 2048, T: 1024, tied: true },
  llama_2b: { V: 50304, d: 1600, L: 48, H: 25, G: 25, F: 6400, T: 1024 },
  llama2_7b: { V: 32000, d: 4096, L: 32, H: 32, G: 32, F: 11008, T: 4096 },
  llama3_8b: { V: 128256, d: 4096, L: 32, H: 32, G: 8, F: 14336, T: 8192 },
  llama2_13b: { V: 32000, d: 5120, L: 40, H: 40, G: 40, F: 13824, T: 4096 },
  llama2_70b: { V: 32000, d: 8192, L: 80, H: 64, G: 8, F: 28672, T: 4096 },
};

/** Bytes of an element in what the model reads, p, and in what gradients are summed in, g. Masters
    and the optimizer's state have 4 in each. */
const PRECISIONS = {
  float32: { p: 4, g: 4 },
  mixed: { p: 2, g: 4 },
  bfloat16: { p: 2, g: 2 },
};

/** The parameters of each segment, in the order of registration, named after their operation. */
function parametersOf({ V, d, L, H, G, F, tied }) {
  const q = d * d, kv = d * d / H * G, ffn = d * F;
  const block = { q_proj: q, k_proj: kv, v_proj: kv, o_proj: q, gate_proj: ffn, up_proj: ffn,
    down_proj: ffn, input_layernorm: d, post_attention_layernorm: d };
  const head = tied ? { norm: d } : { norm: d, lm_head: V * d };
  return [{ embed_tokens: V * d }, ...new Array(L).fill(block), head];
}

/** What each operation of a segment allocates and computes, forward and backward.
    A change says by how many bytes activations (kept for backward), temporaries (gradients of
    activations) and weight gradients grow. A kernel is [flop, elements moved]. */
function segmentsOf(model, B, T, p) {
  const { V, d, L, H, G, F, tied } = model, D = d / H, R = B * T;
  const x = p * R * d, kv = p * R * G * D, f = p * R * F, v = p * R * V, r = 4 * R, lse = 4 * R * H;
  const op = (name, change, ...kernels) => ({ name, change, kernels });
  const row = (flop, moved, n) => [flop * n, moved * n];
  const product = (m, n, k) => [2 * m * n * k, m * n + m * k + n * k];
  const attention = (products, tensors) =>
    [products * (B * H * T) * ((T + 1) * D), tensors * (R * H * D + R * G * D) + R * H];
  const rope = [row(3, 2, R * H * D), row(3, 2, R * G * D)];
  const norm = row(4, 2, R * d), normBackward = row(10, 5, R * d), add = row(1, 3, R * d);
  /** y = x·Wᵀ: first the gradient of W, then x is freed where nothing else keeps it, then dx. */
  const linear = (name, inputs, outputs, change, end) => [
    op(name, { grad: p * inputs * outputs }, product(R, outputs, inputs)),
    op(name, change, product(R, outputs, inputs)), ...(end ? [op(name, end)] : [])];
  const [qo, kvo, up, down] = [[d, d], [d, G * D], [d, F], [F, d]];

  const embedding = {
    name: 'embedding',
    forward: [op('embed_tokens', { activation: x }, row(0, 2, R * d))],
    backward: [
      op('embed_tokens', { grad: tied ? 0 : p * V * d }, [R * d, 3 * R * d + (tied ? 0 : V * d)]),
      op('embed_tokens', { temp: -x })],
  };
  const block = {
    forward: [
      op('input_layernorm', { activation: x + r }, norm),
      op('q_proj', { activation: x }, product(R, ...qo)),
      op('k_proj', { activation: kv }, product(R, ...kvo)),
      op('v_proj', { activation: kv }, product(R, ...kvo)),
      op('attention', { activation: x + lse }, ...rope, attention(2, 2)),
      op('o_proj', { activation: x }, product(R, ...qo)),
      op('add', {}, add),
      op('post_attention_layernorm', { activation: x + r }, norm),
      op('gate_proj', { activation: f }, product(R, ...up)),
      op('up_proj', { activation: f }, product(R, ...up)),
      op('swiglu', { activation: f }, row(20, 3, R * F)),
      op('down_proj', { activation: x }, product(R, ...down)),
      op('add', {}, add)],
    backward: [
      ...linear('down_proj', ...down, { activation: -f, temp: f }),
      op('swiglu', { activation: -2 * f, temp: 2 * f }, row(25, 5, R * F)),  // over gate and up
      op('swiglu', { temp: -f }),
      ...linear('up_proj', ...up, { temp: x }, { temp: -f }),
      ...linear('gate_proj', ...up, { activation: -x, temp: -f }),  // adds to up_proj's dx
      op('post_attention_layernorm', { grad: p * d }, normBackward),
      op('post_attention_layernorm', { activation: -x - r, temp: -x }),
      ...linear('o_proj', ...qo, { temp: x }),
      op('attention', { temp: x + 2 * kv }, attention(5, 4), ...rope),
      op('attention', { activation: -2 * x - 2 * kv - lse, temp: -x }),
      ...linear('v_proj', ...kvo, { temp: x }, { temp: -kv }),
      ...linear('k_proj', ...kvo, { temp: -kv }),
      ...linear('q_proj', ...qo, { activation: -x, temp: -x }),
      op('input_layernorm', { grad: p * d }, normBackward),
      op('input_layernorm', { activation: -x - r, temp: -x })],
  };
  const head = {
    name: 'head',
    forward: [op('norm', { activation: x + r }, norm),
      op('lm_head', { activation: v }, product(R, V, d))],
    backward: [
      ...linear('lm_head', d, V, { activation: -x, temp: x }, { temp: -v }),
      op('norm', { temp: x }, normBackward), op('norm', { grad: p * d }),
      op('norm', { activation: -x - r, temp: -x })],
  };
  const loss = {
    name: 'loss',
    forward: [op('loss', { activation: 4 }),
      op('cross_entropy', { activation: r }, row(15, 1, R * V))],
    backward: [op('loss', { temp: 4 }, [0, 4 / p]),  // d(loss) = 1, in float32
      op('cross_entropy', { activation: -v, temp: v }, row(12, 2, R * V)),  // over the logits
      op('cross_entropy', { activation: -r, temp: -4 })],
  };
  const blocks = Array.from({ length: L }, (_, i) => ({ name: `block ${i}`, ...block }));
  return { segments: [embedding, ...blocks, head], loss, data: 8 * R };
}
