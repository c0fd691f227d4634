// Layers on a device other than convolutions and products, each compared with its definition in
// double precision. A host's compiler compiles this.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "models/cuda/channels_last.hpp"
#include "tutti/base/cuda/stream.hpp"
#include "tutti/base/memory.hpp"
#include "tutti/kernels/cast.hpp"

namespace tutti::test {
namespace {

using models::brain;
using models::channels_last;
using models::gradients;
using models::shape;
using values = std::vector<double>;

template <class T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, float>) {
    return static_cast<float>(value);
  } else {
    return kernels::bfloat::to_bits(static_cast<float>(value));
  }
}
double exact(float value) { return value; }
double exact(brain bits) { return kernels::bfloat::to_float(bits); }

template <class T>
class Layers : public needs_a_device {
 protected:
  using memory = cuda::buffer<T>;

  memory on_device(const values& from) {
    memory made(from.size());
    fill_from_host(queue(), made.span(),
                   [&](std::span<T> to) { std::ranges::transform(from, to.begin(), rounded<T>); });
    return made;
  }
  cuda::buffer<float> floats(const values& from) {
    cuda::buffer<float> made(from.size());
    fill_from_host(queue(), made.span(), [&](std::span<float> to) {
      std::ranges::transform(from, to.begin(), rounded<float>);
    });
    return made;
  }
  template <class U>
  values back(const cuda::buffer<U>& from) {
    values made;
    for (const U each : host_view(queue(), from.span())) {
      made.push_back(exact(each));
    }
    return made;
  }
  /// Returns normally distributed values, rounded to `T`.
  values some(std::size_t n) {
    std::normal_distribution<double> normal;
    values made(n);
    std::ranges::generate(made, [&] { return exact(rounded<T>(normal(random))); });
    return made;
  }

  static void expect_near(const values& got, const values& expected, const std::string& what) {
    constexpr double one_rounding = std::is_same_v<T, float> ? 1e-5 : 1.0 / 256;
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], one_rounding * (std::abs(expected[i]) + 0.02))
          << what << " element " << i;
    }
  }

  /// Expects `write(into, mode)` to overwrite the memory with `expected`, and to add it to what is
  /// there.
  void expect_gradient(const values& expected, const std::string& what,
                       const std::function<void(T*, gradients)>& write) {
    const values before = some(expected.size());
    auto fresh = on_device(before);
    write(fresh.data(), gradients::overwrite);
    expect_near(back(fresh), expected, what + " overwritten");
    auto added = on_device(before);
    write(added.data(), gradients::accumulate);
    values sum = before;
    std::ranges::transform(sum, expected, sum.begin(), std::plus<>());
    expect_near(back(added), sum, what + " accumulated");
  }

  cuda::stream& queue() {
    if (!queue_) {
      queue_.emplace();  // only when it is known that there is a device
    }
    return *queue_;
  }

  std::mt19937_64 random{1};

 private:
  std::optional<cuda::stream> queue_{};
};

using types = testing::Types<float, brain>;
TYPED_TEST_SUITE(Layers, types);

/// Shapes whose channels fill whole packs, and others.
constexpr std::size_t images = 3;
const std::vector<shape> shapes{{5, 7, 9}, {6, 4, 5}, {8, 6, 5}, {24, 3, 4}, {1, 4, 4}};

std::size_t at(const shape& within, std::size_t image, std::size_t c, std::size_t h,
               std::size_t w) {
  return ((image * within.height + h) * within.width + w) * within.channels + c;
}

/// Calls `visit(image, c, h, w)` for every element.
template <class Visit>
void for_each(const shape& within, Visit visit) {
  for (std::size_t image = 0; image < images; ++image) {
    for (std::size_t c = 0; c < within.channels; ++c) {
      for (std::size_t h = 0; h < within.height; ++h) {
        for (std::size_t w = 0; w < within.width; ++w) {
          visit(image, c, h, w);
        }
      }
    }
  }
}

models::extent matrix(const shape& of) { return {images * of.height * of.width, of.channels}; }

}  // namespace

TYPED_TEST(Layers, PlanesBecomePixelsAndPlanesAgain) {
  using layers = channels_last<TypeParam>;
  for (const auto& of : shapes) {
    const values planes = this->some(images * of.size());
    values expected(planes.size());
    for_each(of, [&](std::size_t image, std::size_t c, std::size_t h, std::size_t w) {
      expected[at(of, image, c, h, w)] =
          planes[((image * of.channels + c) * of.height + h) * of.width + w];
    });
    const auto sent = this->floats(planes);
    auto pixels = this->on_device(values(planes.size()));
    const std::size_t cells = of.height * of.width;
    layers::from_planes(this->queue(), sent.data(), pixels.data(), images, of.channels, cells);
    EXPECT_EQ(this->back(pixels), expected);
    auto again = this->floats(values(planes.size()));
    layers::to_planes(this->queue(), pixels.data(), again.data(), images, of.channels, cells);
    EXPECT_EQ(this->back(again), planes);
  }
}

TYPED_TEST(Layers, RectifyAndAdd) {
  using layers = channels_last<TypeParam>;
  for (const std::size_t n : {1U, 7U, 64U, 1001U}) {
    const values x = this->some(n);
    const values y = this->some(n);
    auto rectified = this->on_device(x);
    layers::rectify(this->queue(), rectified.data(), n);
    auto gradient = this->on_device(y);
    layers::rectify_gradient(this->queue(), rectified.data(), gradient.data(), n);
    auto sum = this->on_device(x);
    const auto added = this->on_device(y);
    layers::add(this->queue(), sum.data(), added.data(), n);
    values positive(n);
    values passed(n);
    values both(n);
    for (std::size_t i = 0; i < n; ++i) {
      positive[i] = std::max(x[i], 0.0);
      passed[i] = x[i] > 0 ? y[i] : 0;
      both[i] = x[i] + y[i];
    }
    EXPECT_EQ(this->back(rectified), positive);
    EXPECT_EQ(this->back(gradient), passed);
    this->expect_near(this->back(sum), both, "sum");
  }
}

TYPED_TEST(Layers, ABiasAChannel) {
  using layers = channels_last<TypeParam>;
  for (const auto& of : shapes) {
    const auto size = matrix(of);
    const values x = this->some(size.size());
    const values bias = this->some(of.channels);
    values moved = x;
    values sums(of.channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      moved[i] += bias[i % of.channels];
      sums[i % of.channels] += x[i];
    }
    const auto from = this->floats(bias);
    auto to = this->on_device(x);
    auto scratch = this->queue().template allocate<double>(layers::room(of.channels));
    auto gradient = this->floats(bias);
    layers::bias_gradient(this->queue(), to.data(), size, gradient.data(), scratch.data());
    layers::add_bias(this->queue(), to.data(), size, from.data());
    this->expect_near(this->back(to), moved, "biased");
    this->expect_near(this->back(gradient), sums, "gradient");
  }
}

TYPED_TEST(Layers, BatchesAreNormalised) {
  using layers = channels_last<TypeParam>;
  for (const auto& of : shapes) {
    const auto size = matrix(of);
    const std::size_t channels = of.channels;
    const auto rows = static_cast<double>(size.rows);
    const values x = this->some(size.size());
    const values dy = this->some(size.size());
    const values scale = this->some(channels);
    const values offset = this->some(channels);
    const values running(channels, 0.5);
    values mean(channels);
    values variance(channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      mean[i % channels] += x[i] / rows;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      variance[i % channels] += (x[i] - mean[i % channels]) * (x[i] - mean[i % channels]) / rows;
    }
    const auto standard = [&](std::size_t i, const values& by, const values& squared) {
      return (x[i] - by[i % channels]) /
             std::sqrt(squared[i % channels] + models::batch_norm::epsilon);
    };
    values y(x.size());
    values by_running(x.size());
    values of_scale(channels);
    values of_offset(channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % channels;
      y[i] = standard(i, mean, variance) * scale[c] + offset[c];
      by_running[i] = standard(i, running, running) * scale[c] + offset[c];
      of_scale[c] += dy[i] * standard(i, mean, variance);
      of_offset[c] += dy[i];
    }
    values dx(x.size());
    values moved_mean(channels);
    values moved_variance(channels);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i % channels;
      dx[i] = scale[c] / std::sqrt(variance[c] + models::batch_norm::epsilon) *
              (dy[i] - of_offset[c] / rows - standard(i, mean, variance) * of_scale[c] / rows);
    }
    for (std::size_t c = 0; c < channels; ++c) {
      moved_mean[c] = 0.9 * running[c] + 0.1 * mean[c];
      moved_variance[c] = 0.9 * running[c] + 0.1 * variance[c] * rows / (rows - 1);
    }

    const auto scales = this->floats(scale);
    const auto offsets = this->floats(offset);
    const auto running_mean = this->floats(running);
    const auto running_variance = this->floats(running);
    const auto batch_mean = this->floats(running);
    const auto inverse = this->floats(running);
    const models::normalisation by{.scale = scales.data(),
                                   .offset = offsets.data(),
                                   .running_mean = running_mean.data(),
                                   .running_variance = running_variance.data(),
                                   .mean = batch_mean.data(),
                                   .inverse_deviation = inverse.data()};
    const auto from = this->on_device(x);
    const auto slope = this->on_device(dy);
    auto to = this->on_device(dy);
    auto scratch = this->queue().template allocate<double>(layers::room(channels));
    layers::normalise_by_running(this->queue(), from.data(), to.data(), size, by);
    this->expect_near(this->back(to), by_running, "by running statistics");
    layers::normalise(this->queue(), from.data(), to.data(), size, by, scratch.data());
    this->expect_near(this->back(to), y, "by the batch's");
    this->expect_near(this->back(running_mean), moved_mean, "running mean");
    this->expect_near(this->back(running_variance), moved_variance, "running variance");
    auto scale_gradient = this->floats(scale);
    auto offset_gradient = this->floats(offset);
    this->expect_gradient(dx, "gradient", [&](TypeParam* into, gradients mode) {
      layers::normalise_gradient(this->queue(), from.data(), slope.data(), into, mode, size, by,
                                 scale_gradient.data(), offset_gradient.data(), scratch.data());
    });
    this->expect_near(this->back(scale_gradient), of_scale, "scale's gradient");
    this->expect_near(this->back(offset_gradient), of_offset, "offset's gradient");
  }
}

TYPED_TEST(Layers, TheLargestOfASquare) {
  using layers = channels_last<TypeParam>;
  for (const auto& form : {models::max_pool{}, models::max_pool{3, 2, 1}, models::max_pool{3, 1, 1},
                           models::max_pool{2, 3, 0}}) {
    for (const auto& in : shapes) {
      const shape out = models::facts(form, in).out;
      const values x = this->some(images * in.size());
      const values dy = this->some(images * out.size());
      values y(dy.size());
      values dx(x.size());
      for_each(out, [&](std::size_t image, std::size_t c, std::size_t p, std::size_t q) {
        std::size_t best = x.size();
        for (std::size_t r = 0; r < form.kernel; ++r) {
          for (std::size_t s = 0; s < form.kernel; ++s) {
            const std::size_t h = p * form.stride + r;
            const std::size_t w = q * form.stride + s;
            if (h >= form.padding && h < in.height + form.padding && w >= form.padding &&
                w < in.width + form.padding) {
              const std::size_t here = at(in, image, c, h - form.padding, w - form.padding);
              best = best == x.size() || x[here] > x[best] ? here : best;
            }
          }
        }
        y[at(out, image, c, p, q)] = x[best];
        dx[best] += dy[at(out, image, c, p, q)];
      });
      const auto from = this->on_device(x);
      const auto slope = this->on_device(dy);
      auto to = this->on_device(dy);
      auto winners = this->queue().template allocate<std::uint8_t>(dy.size());
      layers::pool(this->queue(), form, from.data(), in, to.data(), out, winners.data(), images);
      EXPECT_EQ(this->back(to), y);
      this->expect_gradient(dx, "gradient", [&](TypeParam* into, gradients mode) {
        layers::pool_gradient(this->queue(), form, into, in, mode, slope.data(), out,
                              winners.data(), images);
      });
    }
  }
}

TYPED_TEST(Layers, TheMeanOfAnImage) {
  using layers = channels_last<TypeParam>;
  for (const auto& in : shapes) {
    const auto cells = static_cast<double>(in.height * in.width);
    const values x = this->some(images * in.size());
    const values dy = this->some(images * in.channels);
    values y(dy.size());
    values dx(x.size());
    for_each(in, [&](std::size_t image, std::size_t c, std::size_t h, std::size_t w) {
      y[image * in.channels + c] += x[at(in, image, c, h, w)] / cells;
      dx[at(in, image, c, h, w)] = dy[image * in.channels + c] / cells;
    });
    const auto from = this->on_device(x);
    const auto slope = this->on_device(dy);
    auto to = this->on_device(dy);
    layers::average(this->queue(), from.data(), in, to.data(), images);
    this->expect_near(this->back(to), y, "mean");
    this->expect_gradient(dx, "gradient", [&](TypeParam* into, gradients mode) {
      layers::average_gradient(this->queue(), into, in, mode, slope.data(), images);
    });
  }
}

TYPED_TEST(Layers, EverySecondPixelAndMoreChannels) {
  using layers = channels_last<TypeParam>;
  for (const auto& in : shapes) {
    const models::subsample form{in.channels + 3, 2};
    const shape out = models::facts(form, in).out;
    const values x = this->some(images * in.size());
    const values dy = this->some(images * out.size());
    values y(dy.size());
    values dx(x.size());
    for_each(out, [&](std::size_t image, std::size_t c, std::size_t p, std::size_t q) {
      if (c < in.channels) {
        y[at(out, image, c, p, q)] = x[at(in, image, c, 2 * p, 2 * q)];
        dx[at(in, image, c, 2 * p, 2 * q)] = dy[at(out, image, c, p, q)];
      }
    });
    const auto from = this->on_device(x);
    const auto slope = this->on_device(dy);
    auto to = this->on_device(dy);
    layers::take_subsample(this->queue(), form.stride, from.data(), in, to.data(), out, images);
    EXPECT_EQ(this->back(to), y);
    this->expect_gradient(dx, "gradient", [&](TypeParam* into, gradients mode) {
      layers::subsample_gradient(this->queue(), form.stride, into, in, mode, slope.data(), out,
                                 images);
    });
  }
}

}  // namespace tutti::test
