"""From samples to a table and JSON lines."""

import json
import statistics

COLUMNS = ("Tenon", "llama.cpp", "mlx-lm")


class Log:
    """JSON lines, each whole as soon as it is known."""

    def __init__(self, file):
        self.file = file

    def __call__(self, kind, fields):
        self.file.write(json.dumps({"kind": kind, **fields}) + "\n")
        self.file.flush()


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def cell(s, digits=1):
    return f"{s['median']:.{digits}f} ({s['min']:.{digits}f}-{s['max']:.{digits}f})" if s else ""


def summaries(twins, case, turns):
    """One stream: its prefill and its decode; many: their decode."""
    for key in ("prefill_tok_s", "decode_tok_s") if case.batch == 1 else ("decode_tok_s",):
        values = {name: [samples[name][key] for samples in turns] for name in turns[0]}
        summary = {
            "weights": twins.title,
            "measure": key,
            "batch": case.batch,
            "prompt": case.prompt,
            "gen": case.gen,
            **{name: spread(found) for name, found in values.items()},
        }
        if "Tenon" in values and "llama.cpp" in values:
            pairs = zip(values["Tenon"], values["llama.cpp"])
            summary["ratio"] = spread([ours / theirs for ours, theirs in pairs])
        if "Tenon" in values and case.batch == 1 and key == "decode_tok_s":
            # Decoding one stream reads every weight once a token.
            summary["weights_gb_s"] = twins.tenon_bytes() * summary["Tenon"]["median"] / 1e9
        yield summary


def row(summary, read_gb_s):
    if summary["measure"] == "prefill_tok_s":
        title = f"read {summary['prompt']} tokens"
    else:
        title = f"write, {summary['batch']} stream{'s' if summary['batch'] > 1 else ''}"
    ours, llama, mlx = (cell(summary.get(name)) for name in COLUMNS)
    share = f"{summary['weights_gb_s'] / read_gb_s:.2f}" if "weights_gb_s" in summary else ""
    return [summary["weights"], title, ours, llama, cell(summary.get("ratio"), 2), mlx, share]


def print_table(rows, host, versions, options, others):
    print(
        f"\n{host['cpu']}, {host['cores']} cores ({', '.join(host['vectors'])}); memory is read at "
        f"{host['read_gb_s']:.1f} GB/s with {options.threads} threads. "
        f"{'; '.join(sorted(versions))}. {options.threads} threads, tokens a second, medians "
        f"(lowest-highest) of {options.repeat} runs in turn, in which other processes took at most "
        f"{others:.0%} of the machine. mlx-lm reads 32 tokens and writes 8. The last column: "
        f"weights read a second over what memory gives.\n"
    )
    print("| weights | | Tenon | llama.cpp | ratio | mlx-lm | of memory |")
    print("|---|---|---|---|---|---|---|")
    for cells in rows:
        print(f"| {' | '.join(cells)} |")
