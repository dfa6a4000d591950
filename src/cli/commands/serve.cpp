// tenon serve: the HTTP server over one model.
#include <cstdio>

#include "api/api.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/key_file.h"
#include "cli/model_flags.h"
#include "cli/sampling_flags.h"
#include "cli/signals.h"
#include "server/server.h"

namespace tenon::cli {

namespace {

constexpr int kWorkers = 2;           // request workers: parse, template, tokenize, detokenize
constexpr size_t kWorkerQueue = 1024;  // tasks waiting for one

class ServeVerb : public Verb {
 public:
  void declare(Flags& flags) override {
    model_.declare(flags, "info");
    model_.declare_drafts(flags);
    model_.declare_chat_template(flags);
    sampling_.declare(flags);
    flags.text("host", &server_.host, "address to listen on", "ADDRESS");
    flags.integer("port", &server_.port, 0, 65535, "port; 0: any free one");
    flags.text("unix", &server_.unix_path, "listen on this Unix socket as well", "PATH");
    flags.text("api-key-file", &key_file_, "keys, one a line: name:secret or secret", "FILE");
    flags.text("cors-origin", &server_.cors_origin, "origin that browsers may call from, or *",
               "ORIGIN");
    engine::EngineOptions& engine = model_.options();
    flags.integer("max-batch", &engine.max_batch, 1, 1024, "rows in a step");
    flags.integer("max-queue", &engine.max_queue, 0, 1 << 20, "requests waiting for a row");
    flags.integer("gap-ms", &engine.gap_ms, 1, 60000,
                  "longest wait aimed at between a stream's tokens", "MS");
    flags.integer("prefill-chunk", &engine.prefill_chunk, 0, 1 << 20,
                  "prompt tokens of one row in one step; 0: chosen by --gap-ms and measured speed",
                  "TOKENS");
    flags.integer("drain-ms", &drain_ms_, 0, 3600 * 1000,
                  "time for running requests to finish at SIGTERM", "MS");
  }

  Result<int> run() override {
    if (!key_file_.empty()) {
      TENON_TRY(server_.keys, read_key_file(key_file_));
    }
    model_.options().sampling_overrides = sampling_.overrides();
    // Before the engine, so it dies after it: generations hold callbacks into the pool.
    std::unique_ptr<api::Workers> workers = api::make_workers(kWorkers, kWorkerQueue);
    TENON_TRY(auto engine, model_.load());
    TENON_TRY(auto model, engine->model(""));
    api::Context context;
    context.engine = engine.get();
    context.workers = workers.get();
    TENON_TRY(auto server, server::Server::listen(server_, context));
    serve(*engine, *server, model->name);
    server.reset();
    engine->drain(0);
    workers->stop();  // no handler is left when the engine goes
    return 0;
  }

 private:
  void serve(engine::Engine& engine, server::Server& server, const std::string& model_name) {
    Shutdown shutdown([&engine, this] { engine.drain(drain_ms_); }, [&server] { server.stop(); },
                      drain_ms_);
    server.on_signals([&shutdown, &server](int signal) {
      shutdown.begin(signal);
      server.stop();
    });
    bool is_v6 = server_.host.find(':') != std::string::npos;
    std::string host = is_v6 ? "[" + server_.host + "]" : server_.host;
    std::printf("tenon: serving %s on http://%s:%d\n", model_name.c_str(), host.c_str(),
                server.port());
    std::fflush(stdout);
    server.run();
  }

  ModelFlags model_;
  SamplingFlags sampling_;
  server::Options server_;
  std::string key_file_;
  int drain_ms_ = 10000;
};

}  // namespace

TENON_COMMAND(serve, "the HTTP server (OpenAI's API)", ServeVerb);

}  // namespace tenon::cli
