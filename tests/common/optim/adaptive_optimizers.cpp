// Adam, Adamax, Adagrad and Adadelta against PyTorch's numbers, Lion against its paper's rule, and
// all against themselves in pieces.
#include "optim/optimizer.h"
#include "support/catch.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

using namespace fsdp;
using namespace fsdp::optim;

namespace {

using Numbers = std::vector<double>;

/// Five steps from {1, -0.5, 0.25} with the gradients sin(3t + i) of torch 2.15, in float64;
/// Lion's are of the paper's algorithm 2, which subtracts lr · (sign + weight_decay · param).
struct Golden {
  const char* name;
  ops::OptimizerOptions options;
  double lr;
  Numbers param;
  std::map<std::string, Numbers> state;
};

const std::vector<Golden>& goldens() {
  static const std::vector<Golden> all = {
      {"adam",
       {.beta2 = 0.999, .weight_decay = 0.1},
       1e-2,
       {0.978703912189, -0.481657810671, 0.263022487845},
       {{"exp_avg", {0.0794755243131, -0.0568238111661, -0.0681685948486}},
        {"exp_avg_sq", {0.00110321538846, 0.00161881952454, 0.00475115297124}}}},
      {"adamax",
       {.beta2 = 0.999, .weight_decay = 0.1},
       1e-2,
       {0.982385945227, -0.483364817848, 0.262897995942},
       {{"exp_avg", {0.0795161812647, -0.0568409853217, -0.0681696129891}},
        {"exp_inf", {0.748785763135, 0.803580132875, 1.01579704719}}}},
      {"adagrad",
       {.eps = 1e-10, .weight_decay = 0.1, .lr_decay = 0.5, .initial_accumulator_value = 0.25},
       1e-2,
       {0.994229863338, -0.493062392283, 0.256364190854},
       {{"sum", {1.35598802358, 1.87399964551, 5.01149704057}}}},
      {"adadelta",
       {.eps = 1e-6, .weight_decay = 0.1},
       0.5,
       {0.996740382754, -0.498476401023, 0.251480352503},
       {{"square_avg", {0.100867703492, 0.121916495024, 0.389805743055}},
        {"acc_delta", {7.78950098729e-06, 2.49979222233e-06, 4.57446284808e-06}}}},
      {"lion",
       {.beta2 = 0.99, .weight_decay = 0.1},
       1e-2,
       {0.985029950035, -0.487524955032, 0.258732537471},
       {{"exp_avg", {0.00387440716909, -0.0049464105859, -0.00921952125975}}}}};
  return all;
}

template <class T>
Tensor tensor_of(const Numbers& numbers) {
  return Tensor::from(std::vector<T>(numbers.begin(), numbers.end()), {std::ssize(numbers)});
}

template <class T>
void check_near(const Tensor& found, const Numbers& expected) {
  const std::vector<T> values = found.to_vector<T>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double tolerance = sizeof(T) == 8 ? 1e-11 : 2e-6;
    CHECK(std::abs(static_cast<double>(values[i]) - expected[i]) <
          tolerance * std::abs(expected[i]) + 1e-17);
  }
}

template <class T>
void check_against(const Golden& golden) {
  INFO(golden.name << " with elements of " << sizeof(T) << " bytes");
  Optimizer optimizer(golden.name, golden.options);
  std::vector<Piece> pieces{{.key = "w",
                             .param = tensor_of<T>({1, -0.5, 0.25}),
                             .grad = tensor_of<T>({0, 0, 0}),
                             .unit = {}}};
  for (int t = 1; t <= 5; ++t) {
    pieces[0].grad =
        tensor_of<T>({std::sin(3.0 * t), std::sin(3.0 * t + 1), std::sin(3.0 * t + 2)});
    optimizer.step(pieces, golden.lr);
  }
  check_near<T>(pieces[0].param, golden.param);
  CHECK(optimizer.state_names().size() == golden.state.size());
  for (const auto& [name, expected] : golden.state) {
    INFO(name);
    check_near<T>(optimizer.state(pieces[0]).at(name), expected);
  }
}

/// Bits of 37 parameters after five steps, cut before these positions.
std::vector<float> train_in_pieces(const Golden& golden, std::vector<std::int64_t> cuts) {
  Numbers start, slope;
  for (int i = 0; i < 37; ++i) {
    start.push_back(std::sin(i));
    slope.push_back(std::cos(5 * i));
  }
  const Tensor param = tensor_of<float>(start), grad = tensor_of<float>(slope);
  std::vector<Piece> pieces;
  std::int64_t begin = 0;
  cuts.push_back(37);
  for (const std::int64_t end : cuts) {
    pieces.push_back({.key = std::to_string(begin),
                      .param = param.narrow(0, begin, end - begin),
                      .grad = grad.narrow(0, begin, end - begin),
                      .unit = {}});
    begin = end;
  }
  Optimizer optimizer(golden.name, golden.options);
  for (int step = 0; step < 5; ++step) optimizer.step(pieces, golden.lr);
  return param.to_vector<float>();
}

}  // namespace

TEST_CASE("Adam, Adamax, Adagrad, Adadelta and Lion give the golden numbers") {
  for (const Golden& golden : goldens()) {
    check_against<float>(golden);
    check_against<double>(golden);
  }
}

TEST_CASE("adaptive optimizers give the same bits however parameters are cut") {
  for (const Golden& golden : goldens()) {
    INFO(golden.name);
    CHECK(train_in_pieces(golden, {}) == train_in_pieces(golden, {1, 9, 30}));
    CHECK(train_in_pieces(golden, {}) == train_in_pieces(golden, {3, 36}));
  }
}

TEST_CASE("a padding of zeros stays zero under adaptive optimizers") {
  for (const Golden& golden : goldens()) {
    INFO(golden.name);
    std::vector<Piece> pieces{{.key = "w",
                               .param = tensor_of<float>({0, 0, 0}),
                               .grad = tensor_of<float>({0, 0, 0}),
                               .unit = {}}};
    Optimizer optimizer(golden.name, golden.options);
    for (int step = 0; step < 3; ++step) optimizer.step(pieces, golden.lr);
    CHECK(pieces[0].param.to_vector<float>() == std::vector<float>(3, 0));
  }
  // The accumulator may begin at zero.
  Optimizer adagrad("adagrad", {.eps = 1e-10, .weight_decay = 0});
  std::vector<Piece> pieces{
      {.key = "w", .param = tensor_of<float>({0}), .grad = tensor_of<float>({0}), .unit = {}}};
  adagrad.step(pieces, 1e-2);
  CHECK(pieces[0].param.to_vector<float>() == std::vector<float>{0});
}

TEST_CASE("adaptive optimizers do not hide a NaN") {
  for (const Golden& golden : goldens()) {
    INFO(golden.name);
    std::vector<Piece> pieces{{.key = "w",
                               .param = tensor_of<float>({1}),
                               .grad = tensor_of<float>({std::nan("")}),
                               .unit = {}}};
    Optimizer(golden.name, golden.options).step(pieces, golden.lr);
    CHECK(std::isnan(pieces[0].param.to_vector<float>()[0]));
  }
}

TEST_CASE("adaptive optimizers do not decay what should not be decayed") {
  for (const Golden& golden : goldens()) {
    INFO(golden.name);
    std::vector<Piece> pieces{
        {.key = "norm",
         .param = tensor_of<float>({2}),
         .grad = tensor_of<float>({0}),
         .decay = false,
         .unit = {}},
        {.key = "w", .param = tensor_of<float>({2}), .grad = tensor_of<float>({0}), .unit = {}}};
    Optimizer(golden.name, golden.options).step(pieces, golden.lr);
    CHECK(pieces[0].param.to_vector<float>()[0] == 2);
    CHECK(pieces[1].param.to_vector<float>()[0] < 2);
  }
}
