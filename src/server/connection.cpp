// A connection's life: one request after another, the reply, timers, and seeing the client leave.
// Coroutines here take values, or references into the frame that awaits them, and keep lambdas,
// ternaries and temporaries with destructors out of expressions with co_await: g++ 12 may destroy
// those twice.
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/status.hpp>
#include <cerrno>

#include "base/log.h"
#include "server/incoming.h"

namespace tenon::server {

namespace http = boost::beast::http;
using boost::system::error_code;

namespace {
constexpr size_t kPipelinedBytesMax = 64 << 10;
constexpr size_t kSendBufferBytes = 64 << 10;
}  // namespace

Connection::Connection(Socket socket, Shared& shared)
    : shared_(shared),
      socket_(std::move(socket)),
      wake_(socket_.get_executor()),
      deadline_(socket_.get_executor()) {
  shared_.open.insert(this);
  error_code ignored;
  // Small, so that a slow reader shows in our own bound and not seconds later in the kernel's.
  socket_.set_option(net::socket_base::send_buffer_size(kSendBufferBytes), ignored);
  socket_.non_blocking(true, ignored);
}

Connection::~Connection() { close(); }

void Connection::close() {
  disarm();
  if (outbox_) {
    outbox_->detach();
    outbox_->leave();
    outbox_.reset();
  }
  error_code ignored;
  socket_.close(ignored);
  if (shared_.open.erase(this) && shared_.on_closed) shared_.on_closed();
}

void Connection::stop_if_idle() {
  error_code ignored;
  if (idle_) socket_.cancel(ignored);
}

void Connection::cut() {
  left_ = true;
  if (outbox_) outbox_->leave();
  wake_.cancel();
  error_code ignored;
  socket_.cancel(ignored);
}

net::awaitable<void> Connection::run(std::shared_ptr<Connection> self) {
  try {
    bool more = true;
    while (more && !shared_.stopping && !left_) more = co_await serve_one();
  } catch (const std::exception& e) {
    log_debug("connection ended: {}", e.what());
  }
  self->close();
}

net::awaitable<bool> Connection::serve_one() {
  Incoming in(shared_);
  bool good = co_await wait_bytes();
  if (!good) co_return false;
  good = co_await read_header(in);
  if (!good) co_return false;
  good = co_await check_header(in);
  if (!good) co_return false;
  const bool keep_alive = in.parser.keep_alive();
  const bool chunks_known = in.parser.get().version() >= 11;
  if (in.request.method == "OPTIONS") {
    good = co_await answer_options(in);
    co_return good;
  }
  good = co_await read_body(in);
  if (!good) co_return false;
  in.request.body = std::move(in.parser.get().body());
  const bool body_wanted = !in.head;
  dispatch(in);
  good = co_await reply(body_wanted, chunks_known, keep_alive);
  unwatch();
  outbox_->detach();
  if (!good) outbox_->leave();
  outbox_.reset();
  co_return good;
}

void Connection::dispatch(Incoming& in) {
  const auto executor = socket_.get_executor();
  outbox_ = std::make_shared<Outbox>([executor, weak = weak_from_this()] {
    net::post(executor, [weak] {
      if (const auto self = weak.lock()) self->on_notified();
    });
  });
  auto response = make_response(outbox_);
  if (in.request.method != "POST" || !in.endpoint) {
    if (in.head) in.request.method = "GET";
    return api::dispatch(shared_.context, std::move(in.request), std::move(response));
  }
  // The context is copied: a worker may still run when this server is gone.
  auto request = std::make_shared<api::HttpRequest>(std::move(in.request));
  const bool posted = shared_.context.workers->post([context = shared_.context, request, response] {
    api::dispatch(context, std::move(*request), response);
  });
  if (!posted)
    api::send_error(*response, overloaded("The server's request queue is full; try again."));
}

std::string Connection::head(int status, const api::Response::Headers& headers,
                             const std::string& framing, bool keep_alive) const {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  std::string out =
      fmt::format("HTTP/1.1 {} {}\r\n", status, std::string_view(reason.data(), reason.size()));
  for (const auto& [name, value] : headers) {
    out += name + ": ";
    for (const char c : value)
      if (c != '\r' && c != '\n' && c != '\0') out += c;
    out += "\r\n";
  }
  out += framing;
  out += keep_alive ? "connection: keep-alive\r\n\r\n" : "connection: close\r\n\r\n";
  return out;
}

namespace {

bool is_event_stream(const api::Response::Headers& headers) {
  for (const auto& [name, value] : headers)
    if (name == "content-type" && value.starts_with("text/event-stream")) return true;
  return false;
}

std::string chunk(const std::string& bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

}  // namespace

net::awaitable<bool> Connection::reply(bool body_wanted, bool chunks_known, bool keep_alive) {
  bool begun = false, chunked = false, comments = false;
  for (;;) {
    Outbox::View view = outbox_->take();
    if (left_ || view.broken) co_return false;
    std::string out;
    if (view.answered && !begun) {
      begun = true;
      chunked = !view.whole && chunks_known;
      comments = !view.whole && is_event_stream(outbox_->headers());
      keep_alive = keep_alive && (view.whole || chunked) && !shared_.stopping;
      auto headers = cors_headers(shared_.options.cors_origin);
      headers.insert(headers.end(), outbox_->headers().begin(), outbox_->headers().end());
      std::string framing;
      if (view.whole) framing = fmt::format("content-length: {}\r\n", view.bytes.size());
      if (chunked) framing = "transfer-encoding: chunked\r\n";
      out = head(outbox_->status(), headers, framing, keep_alive);
    }
    if (body_wanted && !view.bytes.empty()) out += chunked ? chunk(view.bytes) : view.bytes;
    if (body_wanted && chunked && view.finished) out += "0\r\n\r\n";
    if (!out.empty()) {
      const bool written = co_await write_all(std::move(out));
      if (!written) co_return false;
      if (!view.finished) continue;
    }
    if (view.finished) co_return keep_alive;
    if (!watching_) watch();
    if (comments)
      wake_.expires_after(std::chrono::seconds(shared_.options.keepalive_comment_s));
    else
      wake_.expires_at(net::steady_timer::time_point::max());
    error_code ec;
    co_await wake_.async_wait(net::redirect_error(net::use_awaitable, ec));
    if (ec || !comments || left_) continue;
    std::string comment = ": keep-alive\n\n";
    if (chunked) comment = chunk(comment);
    const bool written = co_await write_all(std::move(comment));
    if (!written) co_return false;
  }
}

net::awaitable<bool> Connection::write_all(std::string bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    error_code ec;
    sent += socket_.write_some(net::buffer(bytes.data() + sent, bytes.size() - sent), ec);
    if (!ec) continue;
    if (ec != net::error::would_block && ec != net::error::try_again) co_return false;
    arm(shared_.options.write_timeout_s);
    co_await socket_.async_wait(Socket::wait_write, net::redirect_error(net::use_awaitable, ec));
    disarm();
    if (ec || left_) co_return false;
  }
  co_return true;
}

// While a reply is pending: sees the client leave. What it sends meanwhile is its next request, and
// is kept.
void Connection::watch() {
  watching_ = true;
  socket_.async_wait(Socket::wait_read, [self = shared_from_this(), id = watch_id_](error_code ec) {
    if (!ec && id == self->watch_id_) self->peek();
  });
}

void Connection::unwatch() {
  ++watch_id_;
  error_code ignored;
  if (watching_) socket_.cancel(ignored);
  watching_ = false;
}

void Connection::peek() {
  // More than this ahead of an answer is no client's next request; unwatched, its leaving would go
  // unseen.
  if (buffer_.size() >= kPipelinedBytesMax) return cut();
  const auto space = buffer_.prepare(4096);
  const ssize_t got = ::recv(socket_.native_handle(), space.data(), space.size(), MSG_DONTWAIT);
  if (got > 0) buffer_.commit(static_cast<size_t>(got));
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) return watch();
  cut();
}

void Connection::on_notified() {
  wake_.cancel();
  error_code ignored;
  // A reader past its bound may sit in a write that will not end.
  if (outbox_ && outbox_->broken()) socket_.cancel(ignored);
}

void Connection::arm(int seconds) {
  timed_out_ = false;
  const unsigned id = ++deadline_id_;
  deadline_.expires_after(std::chrono::seconds(seconds));
  deadline_.async_wait([weak = weak_from_this(), id](error_code ec) {
    const auto self = weak.lock();
    if (ec || !self || id != self->deadline_id_) return;
    self->timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::disarm() {
  ++deadline_id_;
  deadline_.cancel();
}

}  // namespace tenon::server
