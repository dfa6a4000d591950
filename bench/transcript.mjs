// What llama.cpp says, greedily: reads a JSON list of prompts from stdin, prints a list of
// {ids: of the prompt, said: ids that follow}. Keys and values are f16, as everywhere in bench/.
//
//   node transcript.mjs PACKAGES MODEL.gguf --tokens 48 --threads 2
//
// PACKAGES: the folder that holds node_modules.
import path from "node:path";
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";
import {parseArgs} from "node:util";

const {positionals: [packages, modelPath], values} = parseArgs({
    allowPositionals: true,
    options: {tokens: {type: "string", default: "48"}, threads: {type: "string", default: "2"}}
});
const [count, threads] = [Number(values.tokens), Number(values.threads)];
const entry = path.resolve(packages, "node_modules/node-llama-cpp/dist/index.js");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(entry));

const llama = await getLlama({
    gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads
});
const model = await llama.loadModel({modelPath});
const context = await model.createContext({
    sequences: 1, contextSize: 1024, threads: {ideal: threads, min: threads}
});
const sequence = context.getSequence();
const transcripts = [];
for (const prompt of JSON.parse(readFileSync(0, "utf8"))) {
    const ids = model.tokenize(prompt, true);
    if (model.tokens.shouldPrependBosToken && ids[0] !== model.tokens.bos)
        ids.unshift(model.tokens.bos);
    await sequence.clearHistory();
    const said = [];
    for await (const id of sequence.evaluate(ids, {temperature: 0, yieldEogToken: true})) {
        said.push(id);
        if (said.length >= count) break;
    }
    transcripts.push({ids, said});
}
console.log(JSON.stringify(transcripts));
process.exit(0);
