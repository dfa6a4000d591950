// Resolution with the generated-code registry handed in; the door's functions use the empty one.
// Pure functions of their arguments and the builtin tables. Thread: any.
#pragma once
#include "profile/generated.h"
#include "profile/profile.h"

namespace tenon::profile {

Result<Resolved> resolve_with(const Manifest& manifest, const ResolveOptions& options,
                              const GeneratedRegistry& generated);
Status assert_resolved_with(const Manifest& manifest, const Resolved& resolved,
                            const GeneratedRegistry& generated);

}  // namespace tenon::profile
