// Runs nothing: that it links is the test.
extern "C" void (*sape2_public_functions[])();

int main() {
  return sape2_public_functions[0] == nullptr;
}
