#pragma once

#include <concepts>
#include <type_traits>

namespace tutti::archetype {

/// How a verb that a policy may leave out is found by its name: a signature looked for would mean,
/// where whoever wrote it misspells an argument, that the verb is not stated. A name that both
/// bases have is ambiguous in this, be it a template's, an overload's or a private member's:
/// `Policy` states it, where `Archetype` does.
template <class Policy, class Archetype>
struct beside : Policy, Archetype {};
/// Only what the policy itself says counts: who derives from it may have verbs of other kinds.
template <class Policy, class Archetype>
requires std::is_final_v<Policy> || std::same_as<typename Policy::conditional_verbs, Policy>
struct beside<Policy, Archetype> : Archetype {
};

}  // namespace tutti::archetype
