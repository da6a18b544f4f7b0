// An entry of the list of operators: a declaration, parsed at compile time, a functor, and the operator's forms.
#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "parameters.h"

namespace elementwise {

constexpr int kMaxInputs = 16;   // with the gradients of the results, which derivatives also take
constexpr int kMaxOperands = 17; // results and inputs; with more, strided calls took 7 % longer (measured)
constexpr int kMaxArguments = 32;
constexpr int kMaxOptional = 3; // there is a kernel for each combination of present and absent ones
constexpr size_t kMaxKernels = 256;

// The schemas made of the declaration "f(Tensor x, float c)", or "f.tag(Tensor x, float c)":
enum Form : unsigned {
  functional = 1, // f(Tensor x, float c) -> Tensor                                     f.tag
  writing = 2,    // f_out(Tensor x, float c, Tensor(a!) out) -> ()                     f_out.tag
  out = 4,        // f.out(Tensor x, float c, *, Tensor(a!) out) -> Tensor(a!)          f.tag_out
  // If there is a `float`: `functional`, `writing` and `updating` with a float64 scalar on the CPU in its place, for
  // compiled programs in which the number changes. torch.compile would make a `float` a constant, and compile again for
  // the next value. `is_number` only distinguishes this overload from a possible f(Tensor x, Tensor c), because
  // TorchScript finds an operator by its name and the types of its arguments, without the overload's name.
  tensor_numbers = 8, // f.tensor_c(Tensor x, Tensor c, *, bool is_number=True) -> Tensor    f.tag_tensor_c
  // It must be the only form. The declaration marks the tensors that it updates with "(a!)" or "!". The functor takes
  // their elements and returns their new values, in the order of the arguments.
  updating = 64, // f(Tensor(a!) x, float c) -> ()                                      f.tag
};
// Numbers may have defaults, and be keyword-only: "f(Tensor x, *, float c=1.0)". The forms `functional`, `out` and
// `updating` keep these. The others take all arguments by position.

// These are added to an operator's forms. With same_shape, its tensors must have one shape; else they are broadcast.
constexpr unsigned same_shape = 32;
// It has derivatives, which are made from its functor (derivatives.h).
constexpr unsigned differentiable = 128;

enum class Kind {
  tensor,
  real,
  integer,
  boolean,
  optional,
  sizes,  // of the trailing dimensions that are one row. The functor gets the number of these dimensions
  absent, // an optional tensor that is not passed
  chosen, // the first value of a OneOf; the next kind is its second value, and so on
};

constexpr Kind chosen(size_t place) {
  return static_cast<Kind>(static_cast<size_t>(Kind::chosen) + place);
}

constexpr std::string_view kKinds[] = {"Tensor", "float", "int", "bool", "Tensor?", "SymInt[]"}; // in a schema

constexpr bool is_tensor(Kind kind) {
  return kind == Kind::tensor || kind == Kind::optional || kind == Kind::absent;
}

// The index of the I-th argument among the tensors that are present, or among the numbers. It is a variable,
// because nvcc refuses to call is_tensor(), a function of the host, in a function of the device.
template <size_t I, Kind... kKind>
constexpr int kIndexAmong = [] {
  constexpr Kind each[] = {kKind...};
  int before[2] = {};
  for (size_t i = 0; i != I; i++) before[is_tensor(each[i])] += each[i] != Kind::absent;
  return before[is_tensor(each[I])];
}();

struct Argument {
  std::string_view name;
  Kind kind = Kind::tensor;
  std::string_view preset = {}; // its default, in the text of the declaration
  bool is_keyword = false;
  bool is_written = false;

  constexpr bool is_tensor() const {
    return elementwise::is_tensor(kind);
  }
};

// An argument for the kernel that is not a tensor: a float, or an int or bool.
union Number {
  double real;
  int64_t integer;
};

// The faults that a declaration may have, each with its error message. They are in a macro because a static_assert
// needs a literal, and the compiler's error begins with it.
#define ELEMENTWISE_FAULTS(FAULT)                                                                                     \
  FAULT(form, "a declaration looks like \"f(Tensor x, float c)\"")                                                    \
  FAULT(                                                                                                              \
      argument, "an argument is a \"Tensor x\", \"Tensor? x\", \"float c\", \"int n\", \"bool b\" or \"SymInt[] n\"") \
  FAULT(place, "a tensor cannot be keyword-only, and only an optional one may have a default, None")                  \
  FAULT(preset, "the default of a number is a number, and that of a bool is True or False")                           \
  FAULT(count, "too many arguments")                                                                                  \
  FAULT(required, "there must be a tensor among the arguments that is not optional")                                  \
  FAULT(optional, "there may be at most three optional tensors")                                                      \
  FAULT(sizes, "there may be one SymInt[], and no `int dim` beside it")
#define ELEMENTWISE_FAULT(name, sentence) name,
enum class Fault { ELEMENTWISE_FAULTS(ELEMENTWISE_FAULT) none };
#undef ELEMENTWISE_FAULT
#define ELEMENTWISE_FAULT(name, sentence) sentence,
constexpr const char* kSentences[] = {ELEMENTWISE_FAULTS(ELEMENTWISE_FAULT)};
#undef ELEMENTWISE_FAULT

struct Signature {
  std::string_view declaration, name, overload;
  int count = 0, tensors = 0, optional = 0, written = 0, reals = 0, sizes = 0;
  Argument arguments[kMaxArguments] = {};
  Fault fault = Fault::none;

  // Parses a declaration of tensors and numbers. Unlike torch's parser, it needs ", " between arguments. If
  // `reads_arguments` is false, the arguments may be anything, and only the name is read.
  constexpr explicit Signature(std::string_view text, bool reads_arguments = true) : declaration(text) {
    fault = read(text, reads_arguments);
  }

  constexpr Fault read(std::string_view text, bool reads_arguments) {
    const size_t open = find(text, '(');
    if (open == text.size() || (reads_arguments && text.back() != ')')) return Fault::form;
    name = text.substr(0, open);
    if (const size_t dot = find(name, '.'); dot != name.size()) {
      overload = name.substr(dot + 1);
      name = name.substr(0, dot);
    }
    if (!reads_arguments) return Fault::none;
    std::string_view rest = text.substr(open + 1, text.size() - open - 2);
    bool is_keyword = false, has_dim = false;
    while (!rest.empty()) {
      const std::string_view argument = rest.substr(0, find(rest, ','));
      rest = rest.substr(std::min(rest.size(), argument.size() + 2)); // past ", "
      if (argument == "*") {
        is_keyword = true;
        continue;
      }
      const size_t space = find(argument, ' ');
      const std::string_view type = argument.substr(0, space);
      const bool is_written = type.ends_with('!') || type.ends_with("!)");
      const size_t end = is_written ? std::min(find(type, '!'), find(type, '(')) : type.size();
      const auto* const kind = std::find(std::begin(kKinds), std::end(kKinds), type.substr(0, end));
      if (space == argument.size() || kind == std::end(kKinds) || (is_written && kind != kKinds))
        return Fault::argument;
      const std::string_view given = argument.substr(space + 1);
      const size_t equals = find(given, '=');
      const Argument read{
          given.substr(0, equals), static_cast<Kind>(kind - kKinds), given.substr(std::min(given.size(), equals + 1)),
          is_keyword, is_written};
      const bool is_none = read.kind == Kind::optional && read.preset == "None";
      if (read.is_tensor() && (is_keyword || !(read.preset.empty() || is_none))) return Fault::place;
      if (!read.is_tensor() && !read.preset.empty()) {
        const bool is_bool = read.preset == "True" || read.preset == "False";
        const char digit = read.preset[read.preset[0] == '-' && read.preset.size() > 1];
        if (read.kind == Kind::boolean ? !is_bool : digit < '0' || digit > '9') return Fault::preset;
      }
      if (count == kMaxArguments || (read.is_tensor() && tensors == kMaxInputs)) return Fault::count;
      arguments[count++] = read;
      tensors += read.is_tensor();
      optional += read.kind == Kind::optional;
      written += is_written;
      reals += read.kind == Kind::real;
      sizes += read.kind == Kind::sizes;
      has_dim |= read.name == "dim";
    }
    if (tensors == optional) return Fault::required;
    if (sizes > 1 || (sizes && has_dim)) return Fault::sizes;
    return optional > kMaxOptional ? Fault::optional : Fault::none;
  }

  // Finds a character, or returns the size. With a sanitizer, GCC 12 does not accept string_view::find in a constant.
  static constexpr size_t find(std::string_view text, char character) {
    size_t at = 0;
    while (at < text.size() && text[at] != character) at++;
    return at;
  }

  // Whether the name of an argument contains "__", as the names of a derivative's own arguments do.
  constexpr bool has_reserved_name() const {
    for (int i = 0; i < count; i++)
      for (size_t at = 1; at < arguments[i].name.size(); at++)
        if (arguments[i].name[at - 1] == '_' && arguments[i].name[at] == '_') return true;
    return false;
  }

  // Returns the name of the operator in one of its forms, "f_out.tag".
  std::string qualified(unsigned form) const {
    std::string base(name), tag(overload);
    const auto append = [&tag](std::string_view text) { tag.append(tag.empty() ? "" : "_").append(text); };
    if (form & writing) base += "_out";
    if (form & out) append("out");
    if (form & tensor_numbers) append("tensor");
    for (int i = 0; form & tensor_numbers && i < count; i++)
      if (arguments[i].kind == Kind::real) append(arguments[i].name);
    return tag.empty() ? base : base.append(".").append(tag);
  }

  std::string schema(unsigned form, int results) const {
    std::string text = qualified(form) + "(";
    const bool as_declared = form == functional || form == out || form == updating;
    bool is_keyword = false;
    char letter = 'a';
    for (int i = 0; i < count; i++) {
      const bool is_scalar = arguments[i].kind == Kind::real && form & tensor_numbers;
      const std::string_view kind = kKinds[static_cast<int>(is_scalar ? Kind::tensor : arguments[i].kind)];
      text.append(i ? ", " : "");
      if (as_declared && arguments[i].is_keyword && !is_keyword) text.append("*, ");
      is_keyword |= as_declared && arguments[i].is_keyword;
      text.append(kind);
      if (arguments[i].is_written) text.append("(").append(1, letter++).append("!)");
      text.append(" ").append(arguments[i].name);
      if (as_declared && !arguments[i].preset.empty()) text.append("=").append(arguments[i].preset);
    }
    if (form & out) return text + (is_keyword ? "" : ", *") + ", Tensor(a!) out) -> Tensor(a!)";
    if (form & writing) text += ", Tensor(a!) out";
    if (form & tensor_numbers) text += ", *, bool is_number=True";
    if (!(form & functional)) return text + ") -> ()";
    if (results == 1) return text + ") -> Tensor";
    for (int i = 0; i < results; i++) text += i ? ", Tensor" : ") -> (Tensor";
    return text + ")";
  }
};

// A string literal as a template argument.
template <size_t N>
struct Literal {
  constexpr Literal(const char (&from)[N]) {
    for (size_t i = 0; i < N; i++) text[i] = from[i];
  }
  constexpr Literal() = default;
  char text[N] = {};
};

// Writes the declaration of an operator that is made from another one. If `to` is null, it only counts the characters.
struct DeclarationWriter {
  char* to;
  size_t size = 0;

  constexpr void append(auto... texts) {
    for (const std::string_view text : {std::string_view(texts)...})
      for (const char character : text) {
        if (to) to[size] = character;
        size++;
      }
  }
  // The name is that of `of` with an ending. The arguments begin with those of `of`, without defaults.
  constexpr void begin(const Signature& of, auto... ending) {
    append("_", of.name, ending..., of.overload.empty() ? "" : ".", of.overload, "(");
    for (int i = 0; i < of.count; i++)
      append(i ? ", " : "", kKinds[static_cast<int>(of.arguments[i].kind)], " ", of.arguments[i].name);
  }
  // Adds an argument, whose name ends in two underscores and a number below 100. No argument of `of` has such a name
  // (has_reserved_name).
  constexpr void add(std::string_view argument, int number) {
    const char digits[] = {static_cast<char>('0' + number / 10), static_cast<char>('0' + number % 10)};
    append(", ", argument, number < 10 ? std::string_view(digits + 1, 1) : std::string_view(digits, 2));
  }
  constexpr void add_each(std::string_view argument, int count) {
    for (int i = 0; i < count; i++) add(argument, i);
  }
};

// Whether a parameter of type P takes an argument of this kind. Types must match exactly: C++ would convert a number of
// another type silently, and a tensor would get the parameter's dtype. A `float` is no C if that may be an integer.
template <class Dtypes, Kind kind, class P>
constexpr bool kTakes =
    is_tensor(kind)        ? parameters::is_a<P, Optional> == (kind != Kind::tensor)
    : kind >= Kind::chosen ? parameters::is_one_of<P>
    : kind == Kind::real
        ? std::is_same_v<P, double> || (std::is_same_v<P, parameters::AnyC> && std::is_same_v<Dtypes, FloatsOf<Dtypes>>)
    : kind == Kind::integer || kind == Kind::sizes ? std::is_same_v<P, int64_t>
                                                   : std::is_same_v<P, bool>;
template <class Dtypes, Kind... kKind, class... P>
constexpr bool takes(List<P...>) {
  if constexpr (sizeof...(kKind) == sizeof...(P)) return (kTakes<Dtypes, kKind, P> && ...);
  return false;
}

// GCC's error for a static_assert names no type. But if GCC needs the size of an incomplete type, its error contains
// the functor and the sentence. clang and nvcc would shorten the sentence there, but their errors for a static_assert
// name the functor.
template <bool condition, class Functor, Literal sentence>
struct Require;
template <class Functor, Literal sentence>
struct Require<true, Functor, sentence> {};
#if defined(__clang__) || defined(__CUDACC__)
#define ELEMENTWISE_REQUIRE(Functor, condition, sentence) static_assert(condition, sentence)
#else
#define ELEMENTWISE_REQUIRE(Functor, condition, sentence) \
  static_assert(sizeof(elementwise::Require<condition, Functor, sentence>))
#endif

#define ELEMENTWISE_MUST_TAKE                                                                                         \
  "the functor must take what its declaration says, in its order, and be const: a C for each Tensor and float (or a " \
  "double for a float, as it must be if C is an integer or bool), an elementwise::Optional<C> for each Tensor?, an "  \
  "int64_t or an elementwise::OneOf<...> for each int, a bool or an elementwise::OneOf<true, false> for each bool; "  \
  "and over rows a Row& before these, and an elementwise::Elements<C> for a tensor with a value for each element of " \
  "a row"

// A functor and the kind of each of its arguments. Results<T> and Inputs<T> are the types of its results and inputs in
// a call with dtype T. Inputs are the tensors that are passed.
template <class F, Kind... kKind>
struct Kernel {
  using Functor = F;
  using Dtypes = typename DtypesOf<F>::type;
  using Parameters = parameters::Of<F, sizeof...(kKind)>;
  ELEMENTWISE_REQUIRE(
      F, (!Parameters::kAreRead || takes<Dtypes, kKind...>(typename Parameters::Arguments{})), ELEMENTWISE_MUST_TAKE);
  using OfResults = parameters::Each<typename Parameters::Results>;
  using OfInputs = parameters::Each<decltype(parameters::tensors<(kKind == Kind::tensor || kKind == Kind::optional)...>(
      typename Parameters::Arguments{}))>;
  static constexpr int kResults = std::size(OfResults::own);
  static constexpr int kInputs = std::size(OfInputs::own);
  static constexpr int kNumbers = sizeof...(kKind) - (0 + ... + is_tensor(kKind));

  // Returns the index of the first input that is not optional and has this value in `of_each`.
  template <class T>
  static constexpr size_t first_with(T value, const T (&of_each)[kInputs]) {
    size_t place = 0;
    for (const Kind kind : {kKind...}) {
      if (kind == Kind::tensor && of_each[place] == value) return place;
      place += kind == Kind::tensor || kind == Kind::optional;
    }
    return kInputs;
  }
  static constexpr size_t first() {
    return first_with(kOfC, OfInputs::own);
  }
  ELEMENTWISE_REQUIRE(
      F, (first() < kInputs),
      "a tensor that is not optional must be a C; if all have the same fixed dtype, name that in `using dtypes`");
  ELEMENTWISE_REQUIRE(
      F, (parameters::is_of_rows<F> || ((kKind != Kind::sizes) && ...)),
      "a SymInt[] has the sizes of the dimensions that are one row: its functor must take a Row&");
  ELEMENTWISE_REQUIRE(
      F, (!parameters::is_of_rows<F> || first_with(false, OfInputs::of_row) < kInputs),
      "a functor over rows must take the elements of a tensor that is not optional, as elementwise::Elements<C>");
  ELEMENTWISE_REQUIRE(
      F,
      (!parameters::is_of_rows<F> ||
       ![]<class... T>(List<T...>) { return (std::is_same_v<T, bool> || ...); }(Dtypes{})),
      "over rows, `using dtypes` cannot have bool: name uint8_t, and call the operator with x.view(torch.uint8)");
  static_assert(kResults + kInputs <= kMaxOperands, "there may be at most 17 tensors, counting the results");
  template <class T>
  using Results = typename OfResults::template type<T>;
  template <class T>
  using Inputs = typename OfInputs::template type<T>;
};

// The values of a OneOf. Other arguments have none.
struct Choices {
  const int64_t* values = nullptr;
  size_t size = 0;

  // Returns how many kernels an argument needs: one for each value, or two for an optional tensor.
  constexpr size_t count(Kind kind) const {
    return values ? size : kind == Kind::optional ? 2 : 1;
  }
};
template <class P>
constexpr Choices choices_of() {
  if constexpr (parameters::is_one_of<P>) return {P::kValues, std::size(P::kValues)};
  return {};
}
// + 1, because C++ has no empty arrays.
template <class... P>
constexpr auto choices_of(List<P...>) {
  return std::array<Choices, sizeof...(P) + 1>{choices_of<P>()...};
}

// An entry of the list of operators.
template <Literal declaration, class F, unsigned kForms>
struct Operator {
  static constexpr Signature signature{std::string_view(declaration.text)};
#define ELEMENTWISE_FAULT(name, sentence) static_assert(signature.fault != Fault::name, sentence);
  ELEMENTWISE_FAULTS(ELEMENTWISE_FAULT)
#undef ELEMENTWISE_FAULT

  using Functor = F;
  static constexpr bool broadcasts = !(kForms & same_shape), is_differentiable = kForms & differentiable;
  static constexpr bool is_over_rows = parameters::is_of_rows<F>;
  static constexpr const int* like = nullptr;              // for each gradient, the argument whose shape it has
  static constexpr const Signature& in_errors = signature; // names the operator in error messages

  static constexpr bool has(unsigned form) {
    return form & kForms && (!(form & tensor_numbers) || signature.reals > 0);
  }

  // For each argument, its values if it is a OneOf.
  static constexpr auto choices = choices_of(typename parameters::Of<F, signature.count>::Arguments{});

  // There is a kernel for each combination of choices. From one kernel to the next, the first argument's choice
  // changes fastest.
  static constexpr size_t kKernels = [] {
    size_t kernels = 1;
    for (int i = 0; i < signature.count; i++) kernels *= choices[i].count(signature.arguments[i].kind);
    return kernels;
  }();
  static_assert(kKernels <= kMaxKernels, "a kernel would be compiled more than 256 times: give a OneOf fewer values");

  static constexpr Kind kind_of(int argument, size_t place) {
    const Kind kind = signature.arguments[argument].kind;
    for (int i = 0; i < argument; i++) place /= choices[i].count(signature.arguments[i].kind);
    place %= choices[argument].count(kind);
    if (choices[argument].values) return chosen(place);
    return place ? Kind::absent : kind;
  }
  template <size_t place, size_t... I>
  static elementwise::Kernel<F, kind_of(I, place)...> kernel_of(std::index_sequence<I...>);
  template <size_t place>
  using KernelAt = decltype(kernel_of<place>(std::make_index_sequence<signature.count>{}));
  using Kernel = KernelAt<0>; // with all optional tensors

  template <size_t... I>
  static List<KernelAt<I>...> kernels_of(std::index_sequence<I...>);
  using Kernels = decltype(kernels_of(std::make_index_sequence<kKernels>{}));
  static_assert(
      Kernel::kResults == 1 || !(kForms & (writing | out)),
      "an operator with several results cannot have the forms `writing` and `out`");
  static_assert(
      signature.written ? (kForms & ~same_shape) == updating : !(kForms & updating),
      "an operator whose declaration marks tensors as written to has the form `updating`, alone");
  static_assert(
      !signature.written || signature.written == Kernel::kResults,
      "the functor must return the new value of each tensor that its declaration marks as written to");
};

// The kernels of all operators of a list. Each backend finds a kernel by its index in this list.
template <class... Op>
Joined<typename Op::Kernels...> kernels_of(List<Op...>);
template <class Operators>
using KernelsOf = decltype(kernels_of(Operators{}));

// One kernel of an operator, as a value.
struct Description {
  const Signature& signature;      // names the operator in error messages, and lists the arguments of a call
  std::span<const int32_t> dtypes; // the dtypes that C may be
  size_t index;                    // in the list of all operators' kernels
  const int32_t *results, *inputs; // the dtype of each, or kOfC
  size_t count;                    // the number of inputs
  size_t first;                    // the index of the first input that is a C and not optional
  bool broadcasts, is_over_rows;
  const int* like;        // for each gradient, the argument whose shape it has; null for other operators
  const Choices* choices; // one for each argument
  // For an operator over rows: whether each operand has one value for each row.
  const bool *results_of_row, *inputs_of_row;
};

template <class Operators, class Op, class Kernels = typename Op::Kernels>
struct DescriptionOf;
template <class... All, class Op, class... Kernel>
struct DescriptionOf<List<All...>, Op, List<Kernel...>> {
  // One for each kernel.
  static constexpr auto values = [] {
    size_t index = 0;
    (void)((std::is_same_v<All, Op> || (index += All::kKernels, false)) || ...);
    return std::array{Description{
        Op::in_errors, Ordinals<typename Kernel::Dtypes>::each, index++, Kernel::OfResults::own, Kernel::OfInputs::own,
        size_t{Kernel::kInputs}, Kernel::first(), Op::broadcasts, Op::is_over_rows, Op::like, Op::choices.data(),
        Kernel::OfResults::of_row, Kernel::OfInputs::of_row}...};
  }();
};

// Calls body.operator()<Op, form>() for each form of each operator. Those for compiled programs come last, because
// overload resolution takes the first that fits.
template <class... Op>
void for_each_form(List<Op...>, const auto& body) {
  const auto of_all = [&]<unsigned form>() {
    [[maybe_unused]] const auto of_one = [&]<class One>() {
      if constexpr (One::has(form)) body.template operator()<One, form>();
    };
    (of_one.template operator()<Op>(), ...);
  };
  const auto of_each = [&]<unsigned... form>() { (of_all.template operator()<form>(), ...); };
  of_each.template operator()<
      functional, writing, out, functional | tensor_numbers, writing | tensor_numbers, updating,
      updating | tensor_numbers>();
}

} // namespace elementwise
