// Whether a profile says something this engine could mean. Thread: any; pure.
#pragma once
#include <span>

#include "profile/generated.h"
#include "profile/profile.h"

namespace tenon::profile {

// One profile. First failure wins, in this order; Error.reason is "profile." and the code:
//   E-ID E-IMPL E-PAIR E-FID E-COMP E-UNDER, then E-SPEC (specialization against fingerprints and
//   against the generated code this build has).
Status validate_profile(const Profile& profile, const GeneratedRegistry& generated);

// A list of artifact profiles: each one valid, each with both fingerprints (E-NOFP), no id twice
// (E-DUPID). Profiles of one artifact may repeat; that is an error only for the artifact being
// resolved.
Status validate_artifact_profiles(std::span<const Profile* const> profiles,
                                  const GeneratedRegistry& generated);

}  // namespace tenon::profile
