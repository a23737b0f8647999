# Evaluates setup, completion and tests one after another at the top level; each is parsed by itself.
# Descriptor 3 holds the word that proves the end.
lambda do
  place = "/proc/self/fd/3"
  word = File.binread(place)
  File.truncate(place, 0)
  write, leave = File.method(:binwrite), Process.method(:exit!)
  sources = %w[setup.rb solution.rb tests.rb].map { |name| [name, File.read(name), File.open(name)] }
  sources.each do |name, source, file|
    Object.const_set(:DATA, file) if file.each_line.any? { |line| line.chomp == "__END__" }
    TOPLEVEL_BINDING.eval(source, name, 1)
  end
  good = true
  # These would run at the exit, behind the end.
  if defined?(Test::Unit::AutoRunner)
    good = Test::Unit::AutoRunner.run
  elsif defined?(Minitest) && Minitest.respond_to?(:run)
    good = Minitest.run([])
  end
  STDOUT.flush
  STDERR.flush
  write.call(place, "#{word}\n") if good
  leave.call(good ? 0 : 1)
end.call
