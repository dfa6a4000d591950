// One measured run of llama.cpp, through the prebuilt library in node-llama-cpp: loads, warms up,
// runs a batch of random prompts, prints one JSON object. Greedy, ends ignored, keys and values f16.
//
//   node llama.mjs PACKAGES MODEL.gguf --prompt 512 --gen 128 --batch 1 --threads 2 --seed 2
//
// PACKAGES: the folder that holds node_modules. A batch is one context with so many sequences, all
// evaluated concurrently in its batch of 512. The figures are defined as those of `tenon bench`.
import path from "node:path";
import {pathToFileURL} from "node:url";
import {parseArgs} from "node:util";

const BATCH_TOKENS = 512;
const {positionals: [packages, modelPath], values} = parseArgs({
    allowPositionals: true,
    options: {
        prompt: {type: "string", default: "512"}, gen: {type: "string", default: "128"},
        batch: {type: "string", default: "1"}, threads: {type: "string", default: "2"},
        seed: {type: "string", default: "2"}, "flash-attention": {type: "string", default: "off"}
    }
});
const [promptLen, genLen, batch, threads, seed] =
    ["prompt", "gen", "batch", "threads", "seed"].map((name) => Number(values[name]));
const entry = path.resolve(packages, "node_modules/node-llama-cpp/dist/index.js");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(entry));

function randomIds(count, vocab, seed) {
    let state = BigInt(seed) + 1n;
    const ids = [];
    while (ids.length < count) { // a 64-bit linear generator: any ids will do
        state = BigInt.asUintN(64, state * 6364136223846793005n + 1442695040888963407n);
        ids.push(Number((state >> 33n) % BigInt(vocab)));
    }
    return ids;
}

async function runRow(sequence, ids, count) {
    const arrivals = [];
    for await (const _ of sequence.evaluate(ids, {temperature: 0, yieldEogToken: true})) {
        arrivals.push(performance.now());
        if (arrivals.length >= count) break;
    }
    return arrivals;
}

async function runBatch(model, vocab, promptLen, genLen, seed) {
    const context = await model.createContext({
        sequences: batch, contextSize: promptLen + genLen + 1, batchSize: BATCH_TOKENS,
        threads: {ideal: threads, min: threads}, flashAttention: values["flash-attention"] === "on"
    });
    const prompts = Array.from({length: batch},
        (_, i) => randomIds(promptLen, vocab, seed * 1000 + i));
    const sequences = prompts.map(() => context.getSequence());
    const start = performance.now();
    const rows = await Promise.all(prompts.map((ids, i) => runRow(sequences[i], ids, genLen)));
    await context.dispose();
    return {start, rows};
}

function median(values) {
    const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function summarize({start, rows}) {
    const allFirst = Math.max(...rows.map((row) => row[0]));
    const firstEnd = Math.min(...rows.map((row) => row.at(-1)));
    const between = rows.flat().filter((at) => at > allFirst && at <= firstEnd).length;
    return {
        prefill_tok_s: promptLen * rows.length / (allFirst - start) * 1000,
        decode_tok_s: firstEnd > allFirst ? between / (firstEnd - allFirst) * 1000 : 0,
        ttft_ms: median(rows.map((row) => row[0] - start))
    };
}

const llama = await getLlama({
    gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads
});
const model = await llama.loadModel({modelPath});
const vocab = model.fileInfo.metadata?.tokenizer?.ggml?.tokens?.length ?? 32000;
await runBatch(model, vocab, Math.min(promptLen, 32), Math.min(genLen, 4), 1);
const sample = summarize(await runBatch(model, vocab, promptLen, genLen, seed));
const {repo, release} = llama.llamaCppRelease;
console.log(JSON.stringify({...sample, engine: `llama.cpp ${release}`, source: repo}));
process.exit(0);
