// A request while it is read. Lives in the frame of Connection::serve_one. I/O thread only.
#pragma once
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/connection.h"

namespace tenon::server {

struct Connection::Incoming {
  explicit Incoming(Shared& owner) : shared(owner) {}
  ~Incoming() { shared.body_bytes -= leased; }
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;

  // Counts the body read so far against what all bodies together may take, until the reply ended.
  bool lease(size_t bytes) {
    if (bytes <= leased) return true;
    if (shared.body_bytes + (bytes - leased) > shared.options.bodies_bytes_max) return false;
    shared.body_bytes += bytes - leased;
    leased = bytes;
    return true;
  }

  Shared& shared;
  size_t leased = 0;
  boost::beast::http::request_parser<boost::beast::http::string_body> parser;
  api::HttpRequest request;
  const api::Endpoint* endpoint = nullptr;
  bool expects_continue = false;
  bool head = false;
};

}  // namespace tenon::server
