// A request while it is read. Lives in the frame of Connection::serve_one. I/O thread only.
#pragma once
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/connection.h"

namespace tenon::server {

struct Connection::Incoming {
  boost::beast::http::request_parser<boost::beast::http::string_body> parser;
  api::HttpRequest request;
  const api::Endpoint* endpoint = nullptr;
  bool expects_continue = false;
  bool head = false;
};

}  // namespace tenon::server
