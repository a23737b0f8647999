# Evaluates setup, completion and tests, each at the end of the one before, as one program with one scope.
# Descriptor 3 holds the word that proves the end.
no strict;
my $PROCTOR_NAME = do {
    my $place = "/proc/self/fd/3";
    my $read = sub { local $/; open(my $file, "<", $_[0]) or die("$_[0]: $!"); scalar <$file> };
    my $word = $read->($place);
    truncate($place, 0);
    my @texts = map {
        my ($text, $data) = split(/^__(?:END|DATA)__[ \t\r]*(?:\n|\z)/m, $read->($_) // "", 2);
        ["#line 1 \"$_\"\n$text", defined($data) ? \$data : undef];
    } qw(setup.pl solution.pl tests.pl);
    # As Perl does: of the package at the mark, and UTF-8 below `use utf8`.
    my $open = "\n;BEGIN { CORE::open(DATA, \$^H & 0x800000 ? '<:utf8' : '<', &main::PROCTOR_NAME_data()) }";
    my $go_on = "\n;eval &main::PROCTOR_NAME(); &main::PROCTOR_NAME_check();";
    my $data;
    *PROCTOR_NAME_data = sub { $data };
    *PROCTOR_NAME = sub {
        (my $text, $data) = @{shift(@texts)};
        $text . ($data ? $open : "") . (@texts ? $go_on : "");
    };
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
