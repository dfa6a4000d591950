#include "base/check.h"
#include "sched/sched.h"

namespace tenon::sched {

bool Ledger::reserve(uint64_t bytes) {
  if (bytes > bytes_max_ - used_) return false;
  used_ += bytes;
  return true;
}

void Ledger::release(uint64_t bytes) {
  CHECK(bytes <= used_, "released {} of {} reserved bytes", bytes, used_);
  used_ -= bytes;
}

}  // namespace tenon::sched
