"""The tables' schemas as Arrow writes them into a file, so that its readers know the categories.

They are kept here, packed, because a run that only writes need not import Arrow; a test holds them
to `desim.log.schemas`.
"""

import base64
import zlib

PACKED = {
    "events": (
        "c-noDJx&8L5QWG4FO(uh3JQvp9Dss?A|*l`fRcrbNJQAc?j{O7hu|0-"
        "gCd8Z<P;2VW*x~|u~>Q@d;Ix%<Pi~BL_}lKaYQ4^D5U}`43|)XaQ!2a*eN)$pN?n;ojGNQ_6YCL0y>A3J;fayM(T"
        "U)b2@UU<`tI>)2%V&W|(d|KJN1=v@KT~M!Yg6qPGE7y&Jw?SM!Fpp8Xi8Lw)aFTW%1)gF3$c;p_FLnrmJ<eyaZ=f"
        "AbojnQL8N2K-"
        "Eh{mTcgTEt!G52`><a&%@)6W=G7PB33U)83npODhp~3d<BezxSTqJ_&MNEhm9bZ2$OzyCWz!kHi0H4TpMk=j)049"
        "va)_6WW#;pIJ7dUw&R(H~"
    ),
    "metrics": (
        "c-n1`O$x#=6oe<SKS8?aA`2HTdI*<2f|n>7q+qK^Dju=7iu2N-MGQ=)dHFI-LkQunfEu#4s8Aq>;TM<6kkO80#B<"
        "7$o#`*?K*_x3J>iXH?9vR0e|Fc&(RE}r+J)8s*zV#+Pxq05Y9yPKVW*PKYS`3M<(7L(HLHw*8k~RhC-"
        "9AlHzwWBDRVhztJ%_}`RVewP2(AoQ&DBi`F66OPI5|};{WegIpV$_oHP@@h*KT+H_GQLUj"
    ),
    "releases": (
        "c-nPQF;2rk5L_F_Hju(a3KuC{@Bki=f+GJwCOIW1*#_ArQlu0-fr5ex<pDf{A{C<KArxuIF}uFVmQhw3-"
        "|g<~dUwtkW412Qh>mtaL-J`rA#O0oBM-;sV2meOqAB=$hv)-"
        "%1}4BB@g492OaSKo{2GG>ZiM^T#@Nn*xytlPm1>Ur^?`ZhB={soY6d*dl>JU!08~m9w|8qyHv&9>i2FO#+LP_axf"
        "uO6;yY*kIXGXX`9r3Q1^cD&Tzc>D;|_no{8^eQoNt!<eWLfJ%vw~s)+=4F>C^HfbPS<y0F@)`5DB~4_XfD?>6EM4"
        "GA(qK%e<jvL(5s3c2AGIPOQ;9?rB%5Or@2gt*zt#y`JFnuI2q>!SC~B+V|OY_(_kSE>uy=oI@axIgfRbyjQa~dv@"
        "=Cy75`-91{D&_a*AmAI@29YX"
    ),
}


def arrow_schema(name: str) -> bytes:
    """The value of ARROW:schema in the footer of table `name`."""
    return base64.b64encode(zlib.decompress(base64.b85decode(PACKED[name])))
