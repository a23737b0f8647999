# Evaluates setup, completion and tests, each at the end of the one before, as one program with one scope.
# Descriptor 3 holds the word that proves the end.
no strict;
my $PROCTOR_NAME = do {
    my $place = "/proc/self/fd/3";
    my $read = sub { local $/; open(my $file, "<", $_[0]) or die("$_[0]: $!"); scalar <$file> };
    my $word = $read->($place);
    truncate($place, 0);
    my @texts = map { "#line 1 \"$_\"\n" . ($read->($_) // "") } qw(setup.pl solution.pl tests.pl);
    my $go_on = "\n;eval &main::PROCTOR_NAME(); &main::PROCTOR_NAME_check();";
    *PROCTOR_NAME = sub { my $text = shift(@texts); @texts ? $text . $go_on : $text };
    *PROCTOR_NAME_check = sub { die $@ if ref \$@ eq "REF" || $@ ne "" };
    sub {
        return if @texts;  # one of them hides what follows it
        open(my $file, ">", $place);
        syswrite($file, "$word\n");
    };
};
eval &PROCTOR_NAME();
&PROCTOR_NAME_check();
$PROCTOR_NAME->();
