#include "text/shim.h"
#include "text/text.h"

namespace tenon::text {

namespace {

class ShimTemplate final : public ChatTemplate {
 public:
  explicit ShimTemplate(Shim<TkTemplate> handle) : handle_(std::move(handle)) {}

  Result<std::string> render(const Json& context) const override {
    if (!context.is_object()) return invalid("the template context must be an object");
    const std::string text = dump_json(context);
    return shim_take<TkText>([&](TkText* out, TkText* error) {
      return tk_template_render(handle_.get(), text.data(), text.size(), out, error);
    });
  }

 private:
  const Shim<TkTemplate> handle_;
};

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::compile(std::string_view source,
                                                                  std::string_view source_name) {
  TENON_TRY(auto handle, shim_make<TkTemplate>([&](TkTemplate** out, TkText* error) {
              return tk_template_new(source.data(), source.size(), source_name.data(),
                                     source_name.size(), out, error);
            }));
  return std::shared_ptr<const ChatTemplate>(std::make_shared<ShimTemplate>(std::move(handle)));
}

}  // namespace tenon::text
