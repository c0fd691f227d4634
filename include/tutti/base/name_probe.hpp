#pragma once

#include <concepts>
#include <type_traits>

namespace tutti::archetype {

/// Detects by its name whether `Policy` states an optional verb. `Archetype` has a member of that
/// name, so if `Policy` has one too, the name is ambiguous in `name_probe`, even if the member is a
/// template, an overload or private. A search for the verb's full signature would instead take a
/// verb with a misspelt argument for one that is not stated.
template <class Policy, class Archetype>
struct name_probe : Policy, Archetype {};
/// For a policy that is final, or that declares `using conditional_verbs = Policy`. Only what
/// `&Policy::verb` names counts then, so that a verb whose `requires` clause fails is not stated.
/// The alias must name the policy itself, because a class that derives from it may have verbs of
/// other kinds.
template <class Policy, class Archetype>
requires std::is_final_v<Policy> || std::same_as<typename Policy::conditional_verbs, Policy>
struct name_probe<Policy, Archetype> : Archetype {
};

}  // namespace tutti::archetype
