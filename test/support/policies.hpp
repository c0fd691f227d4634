#pragma once

#include <gtest/gtest.h>

#include "tutti/fusion/all.hpp"
#include "tutti/fusion/merge_gradients.hpp"
#include "tutti/fusion/none.hpp"
#include "tutti/fusion/up_to.hpp"
#include "tutti/partition/into.hpp"
#include "tutti/partition/none.hpp"

/// One list per role: a new policy joins its list and inherits its role's laws.
namespace tutti::testing_lists {

using fusions = testing::Types<fusion::none, fusion::up_to, fusion::all, fusion::merge_gradients>;

using partitions = testing::Types<partition::none, partition::into>;

}  // namespace tutti::testing_lists
